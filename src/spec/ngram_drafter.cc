#include "spec/ngram_drafter.h"

#include <algorithm>

#include "base/check.h"

namespace levada::spec {
namespace {

using Text = std::span<const core::Token>;

constexpr std::size_t kFirstSlots = 16;

// A run's hash grows towards the left: one more token is one more step.
std::uint64_t fold(std::uint64_t hash, core::Token token) {
  hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

std::uint64_t hash_of(Text text, std::size_t place, std::size_t length) {
  std::uint64_t hash = 0;
  for (std::size_t i = 1; i <= length; ++i) hash = fold(hash, text[place - i]);
  return hash;
}

std::size_t place_of(std::uint32_t slot) { return slot >> 1; }
bool came_again(std::uint32_t slot) { return (slot & 1) != 0; }

}  // namespace

std::size_t NgramDrafter::Table::find(Text text, std::size_t place, std::uint64_t hash) const {
  const auto count = static_cast<std::size_t>(length);
  const auto run = text.subspan(place - count, count);
  std::size_t slot = hash & (slots.size() - 1);
  while (slots[slot] != 0 && !std::ranges::equal(text.subspan(place_of(slots[slot]) - count, count), run))
    slot = (slot + 1) & (slots.size() - 1);
  return slot;
}

void NgramDrafter::Table::insert(Text text, std::size_t place, std::uint64_t hash) {
  if (2 * (entries + 1) > slots.size()) grow(text);
  slots[find(text, place, hash)] = static_cast<std::uint32_t>(2 * place);
  ++entries;
}

void NgramDrafter::Table::grow(Text text) {
  std::vector<std::uint32_t> old(2 * slots.size());
  old.swap(slots);
  for (const std::uint32_t kept : old) {
    if (kept == 0) continue;
    const std::uint64_t hash = hash_of(text, place_of(kept), static_cast<std::size_t>(length));
    slots[find(text, place_of(kept), hash)] = kept;
  }
}

NgramDrafter::NgramDrafter(NgramOptions options) : min_match_(static_cast<std::size_t>(options.min_match)) {
  LEVADA_CHECK(options.min_match >= 1 && options.min_match <= options.max_match, "lengths of matches are a range");
  for (std::int32_t length = options.min_match; length <= options.max_match; ++length)
    tables_.push_back({length, 0, std::vector<std::uint32_t>(kFirstSlots)});
}

void NgramDrafter::extend(Text text) {
  LEVADA_CHECK(text.size() < std::size_t{1} << 31, "a place fits a slot");
  // The end itself is no place yet: nothing stands behind it.
  for (next_ = std::max(next_, min_match_); next_ < text.size(); ++next_) add(text, next_);
  learned_ = std::max(learned_, text.size());
}

void NgramDrafter::add(Text text, std::size_t place) {
  std::uint64_t hash = hash_of(text, place, min_match_);
  for (std::size_t level = 0; level < tables_.size(); ++level) {
    Table& table = tables_[level];
    const auto length = static_cast<std::size_t>(table.length);
    if (place < length) return;
    if (level > 0) hash = fold(hash, text[place - length]);
    std::uint32_t& slot = table.slots[table.find(text, place, hash)];
    if (slot == 0) return table.insert(text, place, hash);
    // The run's first place was not worth a longer entry before; this one asks for it.
    const std::size_t before = place_of(slot);
    if (!came_again(slot) && level + 1 < tables_.size() && before > length)
      tables_[level + 1].insert(text, before, fold(hash, text[before - length - 1]));
    slot = static_cast<std::uint32_t>(2 * place + 1);
  }
}

void NgramDrafter::propose(Text text, std::int32_t most, std::vector<core::Token>& drafts) const {
  if (text.size() <= min_match_) return;
  std::size_t place = 0;
  std::uint64_t hash = hash_of(text, text.size(), min_match_);
  for (const Table& table : tables_) {
    const auto length = static_cast<std::size_t>(table.length);
    if (text.size() <= length) break;
    if (length > min_match_) hash = fold(hash, text[text.size() - length]);
    const std::uint32_t slot = table.slots[table.find(text, text.size(), hash)];
    if (slot == 0) break;
    place = place_of(slot);
    if (!came_again(slot)) break;  // the only candidate, however far it agrees
  }
  if (place == 0) return;
  const std::size_t period = text.size() - place;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(most, 0)); ++i)
    drafts.push_back(text[place + i % period]);
}

std::size_t NgramDrafter::memory_bytes() const {
  std::size_t bytes = sizeof *this;
  for (const Table& table : tables_) bytes += sizeof table + table.slots.capacity() * sizeof(std::uint32_t);
  return bytes;
}

}  // namespace levada::spec
