// What: NgramDrafter, drafts without a model: what followed the last time the text ended like this.
// Owner: its request.
// Thread: the scheduler's.
// Invariant: proposals are a run of the request's own tokens and depend on these alone. extend() costs the same for every
// token, however long the text; memory is bounded by a constant per token.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"

namespace levada::spec {

struct NgramOptions {
  std::int32_t min_match = 2, max_match = 8;  // tokens of the text's end that must have been there before
};

class NgramDrafter {
 public:
  explicit NgramDrafter(NgramOptions options = {}) : options_(options) {}

  // `text`: all tokens so far, of which those of the call before are a prefix.
  void extend(std::span<const core::Token> text);
  // Appends at most `most` tokens that may follow `text` to `drafts`: those behind the latest earlier place that agrees
  // with the end of the text over the most tokens, up to max_match; none if fewer than min_match agree. REQUIRES:
  // extend(text) was called.
  void propose(std::span<const core::Token> text, std::int32_t most, std::vector<core::Token>& drafts) const;

 private:
  NgramOptions options_;
  std::size_t seen_ = 0;
  std::unordered_map<std::uint64_t, std::int32_t> latest_;  // hash of min_match tokens: the latest place behind them
};

}  // namespace levada::spec
