// What: StreamDecoder, tokens in, text out: the one hold-back buffer for incomplete characters and possible stop strings (law 9).
// Owner: one per running request. Thread: its owner's.
// Invariant: what push() and finish() return, concatenated, is valid UTF-8 and never contains a matched stop string
// (unless keep_stop); a byte sequence that can't become valid gives U+FFFD at once and doesn't stall the stream; an
// incomplete tail becomes one U+FFFD at finish(). Only a suffix that is a proper prefix of some stop string is withheld.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace levada::text {

class StreamDecoder {
 public:
  // `stops` holds no empty string. The tokenizer must outlive the decoder.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special_tokens = true,
                bool keep_stop = false);

  // Appends releasable text to `out`. Returns the matched stop string, after which nothing more may be pushed: the
  // earliest match in the text wins, then the longest.
  std::optional<std::string> push(Token token, std::string& out);
  // Releases everything still held back. Call once, at a finish that is not a stop-string match.
  void finish(std::string& out);

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> stops_;
  bool skip_special_tokens_, keep_stop_;
  std::string held_;   // bytes decoded but not released
};

}  // namespace levada::text
