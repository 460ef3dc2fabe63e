#include "text/added_tokens.h"

#include <algorithm>

#include "text/char_class.h"

namespace levada::text {
namespace {

// Where the white space that ends at `end` begins, not before `floor`.
std::size_t space_begin(std::string_view text, std::size_t floor, std::size_t end) {
  std::size_t begin = end;
  while (begin > floor) {
    std::size_t previous = begin - 1;
    while (previous > floor && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) --previous;
    if (char_at(text, previous).kind != CharClass::kSpace) break;
    begin = previous;
  }
  return begin;
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const ClassifiedChar c = char_at(text, begin);
    if (c.kind != CharClass::kSpace) break;
    begin += c.size;
  }
  return begin;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (end < text.size() && is_word(char_at(text, end).code_point)) return false;
  if (begin == 0) return true;
  std::size_t previous = begin - 1;
  while (previous > 0 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) --previous;
  return !is_word(char_at(text, previous).code_point);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) insert(static_cast<std::int32_t>(i));
}

void AddedTokenMatcher::insert(std::int32_t index) {
  const std::string& text = tokens_[static_cast<std::size_t>(index)].text;
  if (text.empty()) return;
  starts_[static_cast<unsigned char>(text[0])] = true;
  std::int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& children = nodes_[static_cast<std::size_t>(node)].children;
      children.insert(std::lower_bound(children.begin(), children.end(), std::pair(byte, std::int32_t{-1})),
                      {byte, next});
    }
    node = next;
  }
  nodes_[static_cast<std::size_t>(node)].token = index;
}

std::int32_t AddedTokenMatcher::child(std::int32_t node, unsigned char byte) const {
  const auto& children = nodes_[static_cast<std::size_t>(node)].children;
  const auto found = std::lower_bound(children.begin(), children.end(), std::pair(byte, std::int32_t{-1}));
  return found != children.end() && found->first == byte ? found->second : -1;
}

std::int32_t AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  std::int32_t best = -1, node = 0;
  for (; at < text.size(); ++at) {
    node = child(node, static_cast<unsigned char>(text[at]));
    if (node < 0) break;
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token >= 0) best = token;
  }
  return best;
}

bool AddedTokenMatcher::next(std::string_view text, std::size_t from, bool skip_special, Match& match) const {
  std::size_t at = from;
  while (true) {
    while (at < text.size() && !starts_[static_cast<unsigned char>(text[at])]) ++at;
    if (at >= text.size()) return false;
    const std::int32_t index = longest_at(text, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    const std::size_t end = at + token.text.size();
    const bool wanted = !(skip_special && token.special) && (!token.single_word || stands_alone(text, at, end));
    if (wanted) {
      match.begin = token.lstrip ? space_begin(text, from, at) : at;
      match.end = token.rstrip ? space_end(text, end) : end;
      match.id = token.id;
      return true;
    }
    at = end;
  }
}

}  // namespace levada::text
