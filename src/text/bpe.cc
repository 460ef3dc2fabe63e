#include "text/bpe.h"

#include <algorithm>
#include <functional>

namespace levada::text {
namespace {

// Below this many symbols scanning all pairs for the best one beats a heap.
constexpr std::size_t kShortPiece = 24;
constexpr Token kNone = -1;

std::uint64_t pair_key(Token left, Token right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t hash_bytes(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }

}  // namespace

Bpe::Bpe(const std::vector<std::string>& bytes_by_id, const std::vector<Merge>& merges, Options options)
    : options_(options), bytes_by_id_(&bytes_by_id), merges_(merges.size()) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    merges_.set(pair_key(m.left, m.right), std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(m.result));
  }
  byte_token_.fill(kNone);
  index_words(bytes_by_id);
  find_whole_words();
}

void Bpe::index_words(const std::vector<std::string>& bytes_by_id) {
  std::size_t slots = 16;
  while (slots < bytes_by_id.size() * 2) slots *= 2;
  words_.assign(slots, kNone);
  for (std::size_t id = 0; id < bytes_by_id.size(); ++id) {
    const std::string& bytes = bytes_by_id[id];
    if (bytes.empty()) continue;
    if (bytes.size() == 1) byte_token_[static_cast<unsigned char>(bytes[0])] = static_cast<Token>(id);
    std::size_t at = hash_bytes(bytes) & (slots - 1);
    while (words_[at] != kNone) at = (at + 1) & (slots - 1);
    words_[at] = static_cast<Token>(id);
    longest_ = std::max(longest_, bytes.size());
  }
}

// Most words of a text are one token each: knowing which tokens their own bytes merge to saves merging them again.
void Bpe::find_whole_words() {
  whole_.assign(bytes_by_id_->size(), false);
  Scratch scratch;
  std::vector<Token> tokens;
  for (std::size_t id = 0; id < bytes_by_id_->size(); ++id) {
    const std::string& bytes = (*bytes_by_id_)[id];
    if (bytes.empty()) continue;
    tokens.clear();
    merge_symbols(bytes, tokens, scratch);
    whole_[id] = tokens.size() == 1 && tokens[0] == static_cast<Token>(id);
  }
}

std::optional<Token> Bpe::find(std::string_view bytes) const {
  if (bytes.empty() || bytes.size() > longest_) return std::nullopt;
  for (std::size_t at = hash_bytes(bytes) & (words_.size() - 1); words_[at] != kNone;
       at = (at + 1) & (words_.size() - 1)) {
    if ((*bytes_by_id_)[static_cast<std::size_t>(words_[at])] == bytes) return words_[at];
  }
  return std::nullopt;
}

void Bpe::encode(std::string_view piece, std::vector<Token>& out, Scratch& scratch) const {
  if (const auto whole = find(piece); whole && (options_.ignore_merges || whole_[static_cast<std::size_t>(*whole)])) {
    out.push_back(*whole);
    return;
  }
  merge_symbols(piece, out, scratch);
}

void Bpe::load_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  for (const char c : piece) {
    const Token token = byte_token_[static_cast<unsigned char>(c)];
    const bool known = token != kNone;
    if (!known && !options_.unknown) continue;
    const bool fused = !known && options_.fuse_unknown && !symbols.empty() && symbols.back().token == *options_.unknown;
    if (fused) continue;
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({known ? token : *options_.unknown, index - 1, index + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void Bpe::merge_symbols(std::string_view piece, std::vector<Token>& out, Scratch& scratch) const {
  load_symbols(piece, scratch.symbols);
  if (scratch.symbols.empty()) return;
  if (scratch.symbols.size() > kShortPiece) {
    merge_long(scratch);
    for (std::int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<std::size_t>(i)].next) {
      out.push_back(scratch.symbols[static_cast<std::size_t>(i)].token);
    }
    return;
  }
  merge_short(scratch.symbols);
  for (const Symbol& symbol : scratch.symbols) out.push_back(symbol.token);
}

void Bpe::merge_short(std::vector<Symbol>& symbols) const {
  std::uint64_t found[kShortPiece];  // found[i]: merge of symbols i and i + 1, FlatMap::kEmpty if none
  const auto look_up = [&](std::size_t i) {
    const std::uint64_t* merge = merges_.find(pair_key(symbols[i].token, symbols[i + 1].token));
    found[i] = merge != nullptr ? *merge : FlatMap::kEmpty;
  };
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    // The rank stands in the high half, so the smallest value is the best merge; min_element takes the leftmost.
    const std::size_t best = static_cast<std::size_t>(std::min_element(found, found + count - 1) - found);
    if (found[best] == FlatMap::kEmpty) break;
    symbols[best].token = static_cast<Token>(found[best] & 0xFFFFFFFFu);
    for (std::size_t i = best + 1; i + 1 < count; ++i) symbols[i].token = symbols[i + 1].token;
    for (std::size_t i = best + 1; i + 2 < count; ++i) found[i] = found[i + 1];
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  symbols.resize(count);
}

bool Bpe::append_candidate(Scratch& scratch, std::int32_t left) const {
  const Symbol& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return false;
  const Token right = scratch.symbols[static_cast<std::size_t>(symbol.next)].token;
  const std::uint64_t* merge = merges_.find(pair_key(symbol.token, right));
  if (merge == nullptr) return false;
  scratch.heap.push_back(
      {static_cast<std::uint32_t>(*merge >> 32), left, symbol.token, right, static_cast<Token>(*merge & 0xFFFFFFFFu)});
  return true;
}

void Bpe::push_candidate(Scratch& scratch, std::int32_t left) const {
  if (append_candidate(scratch, left)) std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  scratch.heap.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) append_candidate(scratch, i);
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
    const Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(best.left)];
    if (left.token != best.left_token || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.token != best.right_token) continue;
    left.token = best.result;
    right.token = kNone;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.left;
    if (left.previous >= 0) push_candidate(scratch, left.previous);
    push_candidate(scratch, best.left);
  }
}

}  // namespace levada::text
