#include "text/stream_decoder.h"

#include <algorithm>

#include "base/check.h"

namespace levada::text {
namespace {

std::vector<std::uint32_t> border_table(const std::string& text) {
  std::vector<std::uint32_t> border(text.size() + 1, 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::uint32_t k = border[i];
    while (k > 0 && text[k] != text[i]) k = border[k];
    border[i + 1] = text[k] == text[i] ? k + 1 : 0;
  }
  return border;
}

}  // namespace

bool StreamDecoder::Stop::advance(char c) {
  while (matched > 0 && (matched == text.size() || text[matched] != c)) matched = failure[matched];
  if (text[matched] == c) ++matched;
  return matched == text.size();
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special_tokens,
                             bool keep_stop)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens), keep_stop_(keep_stop) {
  set_stops(std::move(stops));
}

void StreamDecoder::set_stops(std::vector<std::string> stops) {
  LEVADA_CHECK(stops_.empty(), "stop strings are given once");
  for (std::string& stop : stops) {
    LEVADA_CHECK(!stop.empty(), "an empty stop string must be refused at the border");
    first_bytes_.set(static_cast<unsigned char>(stop[0]));
    stops_.push_back({.text = std::move(stop), .failure = {}});
    stops_.back().failure = border_table(stops_.back().text);
  }
}

bool StreamDecoder::may_hold(std::string_view bytes) const {
  if (stops_.empty()) return false;
  return std::any_of(bytes.begin(), bytes.end(), [&](char c) { return first_bytes_[static_cast<unsigned char>(c)]; });
}

std::optional<std::string> StreamDecoder::push(Token token, std::string& out) {
  LEVADA_CHECK(!stopped_, "push() after a stop string matched");
  if (skip_special_tokens_ && tokenizer_->is_special(token)) return std::nullopt;
  const std::string_view bytes = tokenizer_->bytes(token);
  // Most tokens: plain text, nothing held back and nothing in it that could begin a stop string.
  const bool plain = held_.empty() && !sanitizer_.has_tail() && ascii_prefix(bytes) == bytes.size() && !may_hold(bytes);
  if (plain) {
    out += bytes;
    return std::nullopt;
  }
  const std::size_t fresh = held_.size();
  sanitizer_.push(bytes, held_);
  return release(fresh, out);
}

void StreamDecoder::finish(std::string& out) {
  LEVADA_CHECK(!stopped_, "finish() after a stop string matched");
  const std::size_t fresh = held_.size();
  sanitizer_.finish(held_);
  release(fresh, out);
  if (!stopped_) out += held_;
  held_.clear();
  stopped_ = true;
}

// Of all stop strings complete somewhere in held_[fresh..): the earliest, then the longest.
std::optional<StreamDecoder::Match> StreamDecoder::scan(std::size_t fresh) {
  std::optional<Match> best;
  for (Stop& stop : stops_) {
    for (std::size_t at = fresh; at < held_.size(); ++at) {
      if (!stop.advance(held_[at])) continue;
      const std::size_t begin = at + 1 - stop.text.size();
      const bool better =
          !best || begin < best->begin || (begin == best->begin && stop.text.size() > best->stop->size());
      if (better) best = Match{begin, &stop.text};
      break;  // later occurrences of the same string begin later
    }
  }
  return best;
}

// Moves to `out` what can't be part of a stop string any more, given that held_[fresh..) is new.
std::optional<std::string> StreamDecoder::release(std::size_t fresh, std::string& out) {
  if (const auto match = scan(fresh)) {
    stopped_ = true;
    out.append(held_, 0, match->begin + (keep_stop_ ? match->stop->size() : 0));
    held_.clear();
    return *match->stop;
  }
  std::size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max<std::size_t>(keep, stop.matched);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return std::nullopt;
}

}  // namespace levada::text
