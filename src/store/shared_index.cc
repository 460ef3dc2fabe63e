#include "store/shared_index.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/hash.h"

namespace levada::store {
namespace {

constexpr char kMagic[] = "LVSTIDX";
static_assert(offsetof(IndexHeader, incarnation) == 16 && offsetof(IndexHeader, sequence) == 56 &&
                  offsetof(IndexHeader, closed) == 64 && offsetof(IndexEntry, next) == 40 &&
                  offsetof(IndexEntry, key) == 64,
              "docs/formats/store.md says where the fields lie");
constexpr std::uint64_t kPageBytes = 4096;
// A chain that a writer changes under a reader's feet may lead anywhere, for ever; no honest one is this long.
constexpr int kMaxSteps = 1 << 16;
constexpr int kAttempts = 64;

std::uint64_t page_up(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::uint64_t key_hash(std::string_view key) { return hash64(std::as_bytes(std::span(key))); }

std::uint64_t key_word(std::string_view key, std::size_t word) {
  std::uint64_t value = 0;
  std::memcpy(&value, key.data() + word * 8, std::min<std::size_t>(8, key.size() - word * 8));
  return value;
}

std::size_t key_words(std::string_view key) { return (key.size() + 7) / 8; }

}  // namespace

IndexLayout IndexLayout::of(std::uint32_t entries, std::uint64_t data_bytes, Data data) {
  IndexLayout layout{};
  layout.entries = entries;
  layout.buckets = std::bit_ceil(entries * 2);
  layout.buckets_offset = kPageBytes;
  layout.entries_offset = layout.buckets_offset + page_up(std::uint64_t{layout.buckets} * 4);
  const std::uint64_t index_bytes = layout.entries_offset + page_up(std::uint64_t{entries} * sizeof(IndexEntry));
  layout.data_offset = data == Data::kHere ? index_bytes : 0;
  layout.data_bytes = data_bytes;
  layout.total_bytes = page_up(index_bytes + (data == Data::kHere ? data_bytes : 0));
  return layout;
}

IndexWriter::IndexWriter(std::span<std::byte> memory, const IndexLayout& layout, std::uint64_t incarnation)
    : header_(*new (memory.data()) IndexHeader{}),
      buckets_(reinterpret_cast<std::atomic<std::uint32_t>*>(memory.data() + layout.buckets_offset), layout.buckets),
      entries_(reinterpret_cast<IndexEntry*>(memory.data() + layout.entries_offset), layout.entries) {
  LEVADA_CHECK(memory.size() >= layout.total_bytes, "an index larger than its memory");
  header_.version = kIndexVersion;
  header_.entries = layout.entries;
  header_.buckets = layout.buckets;
  header_.incarnation = incarnation;
  header_.buckets_offset = layout.buckets_offset;
  header_.entries_offset = layout.entries_offset;
  header_.data_offset = layout.data_offset;
  header_.data_bytes = layout.data_bytes;
  std::memcpy(header_.magic, kMagic, sizeof header_.magic);
}

std::optional<std::uint32_t> IndexWriter::try_take() {
  if (!free_.empty()) {
    const std::uint32_t entry = free_.back();
    free_.pop_back();
    return entry;
  }
  if (untouched_ == entries_.size()) return std::nullopt;
  return untouched_++;
}

std::atomic<std::uint32_t>& IndexWriter::bucket_of(std::uint64_t hash) {
  return buckets_[hash & (header_.buckets - 1)];
}

std::uint64_t IndexWriter::publish(std::uint32_t number, std::string_view key, const Object& object) {
  LEVADA_CHECK(key.size() <= kMaxKeyBytes, "a key longer than an entry holds");
  IndexEntry& entry = entries_[number];
  const std::uint64_t hash = key_hash(key);
  entry.hash.store(hash, std::memory_order_relaxed);
  entry.offset.store(object.offset, std::memory_order_relaxed);
  entry.bytes.store(object.bytes, std::memory_order_relaxed);
  entry.checksum.store(object.checksum, std::memory_order_relaxed);
  entry.key_bytes.store(static_cast<std::uint32_t>(key.size()), std::memory_order_relaxed);
  for (std::size_t word = 0; word < key_words(key); ++word)
    entry.key[word].store(key_word(key, word), std::memory_order_relaxed);
  const std::uint64_t guard = next_generation_++ << 1 | 1;
  entry.guard.store(guard, std::memory_order_release);

  std::atomic<std::uint32_t>& bucket = bucket_of(hash);
  header_.sequence.fetch_add(1, std::memory_order_seq_cst);
  entry.next.store(bucket.load(std::memory_order_relaxed), std::memory_order_release);
  bucket.store(number + 1, std::memory_order_release);
  header_.sequence.fetch_add(1, std::memory_order_seq_cst);
  return guard;
}

void IndexWriter::retract(std::uint32_t number) {
  IndexEntry& entry = entries_[number];
  const std::uint64_t guard = entry.guard.load(std::memory_order_relaxed);
  LEVADA_CHECK((guard & 1) == 1, "an entry is retracted twice");
  // Sequentially consistent against a reader's slot: either it sees this, or the owner sees the slot.
  entry.guard.store(guard & ~std::uint64_t{1}, std::memory_order_seq_cst);

  header_.sequence.fetch_add(1, std::memory_order_seq_cst);
  std::atomic<std::uint32_t>* link = &bucket_of(entry.hash.load(std::memory_order_relaxed));
  while (link->load(std::memory_order_relaxed) != number + 1) {
    const std::uint32_t next = link->load(std::memory_order_relaxed);
    LEVADA_CHECK(next != 0, "a published entry is in no chain");
    link = &entries_[next - 1].next;
  }
  link->store(entry.next.load(std::memory_order_relaxed), std::memory_order_release);
  header_.sequence.fetch_add(1, std::memory_order_seq_cst);
}

void IndexWriter::close() { header_.closed.store(1, std::memory_order_release); }

Result<IndexReader> IndexReader::open(std::span<const std::byte> memory) {
  const auto damaged = [](const char* what) { return data_loss("the store's shared index: " + std::string(what)); };
  if (memory.size() < kPageBytes) return damaged("shorter than its header");
  const auto* header = reinterpret_cast<const IndexHeader*>(memory.data());
  if (std::memcmp(header->magic, kMagic, sizeof header->magic) != 0) return damaged("not an index");
  if (header->version != kIndexVersion) {
    return damaged(
        ("version " + std::to_string(header->version) + ", this levada reads " + std::to_string(kIndexVersion))
            .c_str());
  }
  const std::uint32_t entries = header->entries;
  const std::uint64_t data_bytes = header->data_bytes;
  const IndexLayout::Data data = header->data_offset == 0 ? IndexLayout::Data::kElsewhere : IndexLayout::Data::kHere;
  if (entries == 0 || entries > kMaxIndexEntries ||
      data_bytes > (data == IndexLayout::Data::kHere ? memory.size() : kMaxArenaBytes)) {
    return damaged("counts out of range");
  }
  // One writer, one layout: whatever differs from it is damage, and the rest needs no checks of its own.
  const IndexLayout layout = IndexLayout::of(entries, data_bytes, data);
  if (header->buckets != layout.buckets || header->buckets_offset != layout.buckets_offset ||
      header->entries_offset != layout.entries_offset || header->data_offset != layout.data_offset ||
      layout.total_bytes > memory.size()) {
    return damaged("a layout that doesn't fit the memory");
  }
  IndexReader reader;
  reader.header_ = header;
  reader.buckets_ = {reinterpret_cast<const std::atomic<std::uint32_t>*>(memory.data() + layout.buckets_offset),
                     layout.buckets};
  reader.entries_ = {reinterpret_cast<const IndexEntry*>(memory.data() + layout.entries_offset), entries};
  if (data == IndexLayout::Data::kHere) reader.data_ = memory.subspan(layout.data_offset, data_bytes);
  reader.data_bytes_ = data_bytes;
  reader.incarnation_ = header->incarnation;
  return reader;
}

bool IndexReader::matches(const IndexEntry& entry, std::string_view key, std::uint64_t hash, Found& found) const {
  found.guard = entry.guard.load(std::memory_order_acquire);
  if ((found.guard & 1) == 0 || entry.hash.load(std::memory_order_acquire) != hash ||
      entry.key_bytes.load(std::memory_order_acquire) != key.size())
    return false;
  for (std::size_t word = 0; word < key_words(key); ++word)
    if (entry.key[word].load(std::memory_order_acquire) != key_word(key, word)) return false;
  found.offset = entry.offset.load(std::memory_order_acquire);
  found.bytes = entry.bytes.load(std::memory_order_acquire);
  found.checksum = entry.checksum.load(std::memory_order_acquire);
  return found.offset <= data_bytes_ && found.bytes <= data_bytes_ - found.offset &&
         entry.guard.load(std::memory_order_seq_cst) == found.guard;
}

IndexReader::Answer IndexReader::find(std::string_view key, Found& found) const {
  if (key.size() > kMaxKeyBytes) return Answer::kAbsent;
  const std::uint64_t hash = key_hash(key);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t sequence = header_->sequence.load(std::memory_order_seq_cst);
    std::uint32_t link = buckets_[hash & (buckets_.size() - 1)].load(std::memory_order_acquire);
    for (int step = 0; link != 0 && link <= entries_.size(); ++step) {
      if (step == kMaxSteps) return Answer::kUnsure;
      const IndexEntry& entry = entries_[link - 1];
      if (matches(entry, key, hash, found)) {
        found.entry = link - 1;
        return Answer::kFound;
      }
      link = entry.next.load(std::memory_order_acquire);
    }
    const bool steady = sequence % 2 == 0 && header_->sequence.load(std::memory_order_seq_cst) == sequence;
    if (link == 0 && steady) return Answer::kAbsent;
  }
  return Answer::kUnsure;
}

}  // namespace levada::store
