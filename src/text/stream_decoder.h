// What: StreamDecoder, tokens in, text out: the one hold-back buffer for incomplete characters and possible stop
// strings (law 9).
// Owner: one per running request.
// Thread: its owner's.
// Invariant: what push() and finish() return, concatenated, is valid UTF-8 and never contains a matched stop string
// (unless keep_stop); a byte sequence that can't become valid gives U+FFFD at once and doesn't stall the stream; an
// incomplete tail becomes one U+FFFD at finish(). Only a suffix that is a proper prefix of some stop string is
// withheld.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace levada::text {

class StreamDecoder {
 public:
  // `stops` holds no empty string. The tokenizer must outlive the decoder.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special_tokens = true,
                bool keep_stop = false);

  // Gives a decoder without stop strings its stop strings: they match in the text of tokens pushed from now on. For
  // answers that may not stop before some minimum.
  void set_stops(std::vector<std::string> stops);

  // Appends releasable text to `out`. Returns the matched stop string, after which nothing more may be pushed. A match
  // is taken at the token that completes it; of those complete then, the earliest in the text wins, then the longest.
  std::optional<std::string> push(Token token, std::string& out);
  // Releases everything still held back. Call once, at a finish that is not a stop-string match.
  void finish(std::string& out);

 private:
  // One stop string and how much of it the text ends with (Knuth-Morris-Pratt).
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> failure;  // failure[i]: longest proper border of the first i bytes
    std::uint32_t matched = 0;
    bool advance(char c);  // true when the last byte completes the stop string
  };
  struct Match {
    std::size_t begin;  // in held_
    const std::string* stop;
  };

  bool may_hold(std::string_view bytes) const;
  std::optional<std::string> release(std::size_t fresh, std::string& out);
  std::optional<Match> scan(std::size_t fresh);

  const Tokenizer* tokenizer_;
  std::vector<Stop> stops_;
  bool skip_special_tokens_, keep_stop_;
  bool stopped_ = false;
  std::bitset<256> first_bytes_;  // of the stop strings
  Utf8Sanitizer sanitizer_;       // holds bytes of an incomplete character
  std::string held_;              // valid text decoded but not released
};

}  // namespace levada::text
