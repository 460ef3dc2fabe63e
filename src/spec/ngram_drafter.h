// What: NgramDrafter, drafts without a model: what followed the last time the text ended like this.
// Owner: its request.
// Thread: the scheduler's.
// Invariant: proposals are a run of the request's own tokens and depend on these alone, not on how they came. extend() costs
// the same for every token (amortized), however long the text; memory is bounded by a constant per token.
// Structure: one table of places per length, min_match to max_match. A place p stands for the tokens that end before it,
// text[p - length, p), and a table keeps the latest place of each such run. Runs of length + 1 are looked up only behind one
// of `length` that came twice, and only then are they kept: text that doesn't repeat costs one entry per token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace levada::spec {

struct NgramOptions {
  std::int32_t min_match = 2, max_match = 8;  // tokens of the text's end that must have been there before
};

class NgramDrafter {
 public:
  // REQUIRES: 1 <= min_match <= max_match.
  explicit NgramDrafter(NgramOptions options = {});

  // `text`: all tokens so far, of which those of the call before are a prefix. A long one may be told in several calls, each
  // with more of it.
  void extend(std::span<const core::Token> text);
  // Appends at most `most` tokens that may follow `text` to `drafts`: those behind the latest earlier place that agrees
  // with the end of the text over the most tokens, up to max_match; none if fewer than min_match agree. Where they reach
  // the end of the text they go on with themselves: what repeats goes on repeating. REQUIRES: extend(text) was called.
  void propose(std::span<const core::Token> text, std::int32_t most, std::vector<core::Token>& drafts) const;

  // Tokens of the longest text told so far.
  std::size_t learned() const { return learned_; }
  std::size_t memory_bytes() const;

 private:
  using Text = std::span<const core::Token>;

  // Runs of one length by content: open addressing over places, whose tokens are read in the text.
  struct Table {
    std::int32_t length = 0;
    std::size_t entries = 0;
    std::vector<std::uint32_t> slots;  // 0: empty; else 2 * place, + 1 once the run came again

    // The slot of the run before `place`, or the empty one where it belongs. `hash` is the run's.
    std::size_t find(Text text, std::size_t place, std::uint64_t hash) const;
    void insert(Text text, std::size_t place, std::uint64_t hash);
    void grow(Text text);
  };

  void add(Text text, std::size_t place);

  std::size_t min_match_;
  std::size_t learned_ = 0;
  std::size_t next_ = 0;  // places before it are in the tables
  std::vector<Table> tables_;
};

}  // namespace levada::spec
