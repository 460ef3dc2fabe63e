// What: ReasoningSplitter, an answer's text into the model's reasoning and what it says after it.
// Owner: one answer's Parser.
// Thread: its owner's.
// Invariant: how the text is cut into pieces does not change what comes out; nothing is lost but the tags and the blanks next
// to them. Reasoning that never ends is reasoning to the last byte.
//
//   kStart ──begin tag──> kInside ──end tag──> kAfter ──not blank──> kOutside
//      └──anything else──────────────────────────────────────────────────^
#pragma once

#include <string>
#include <string_view>

#include "reply/pieces.h"

namespace levada::reply {

struct ReasoningTags {
  std::string begin, end;
};

class ReasoningSplitter {
 public:
  // `open`: the prompt ends inside the reasoning. A begin tag that the model repeats then is dropped, too.
  ReasoningSplitter(ReasoningTags tags, bool open);

  // Appends reasoning to `pieces` and content to `content`.
  void push(std::string_view text, Pieces& pieces, std::string& content);
  void finish(Pieces& pieces, std::string& content);
  bool inside() const { return phase_ == Phase::kInside; }

 private:
  enum class Phase { kStart, kInside, kAfter, kOutside };
  // Each takes what it can from buffer_; false: it waits for more.
  bool start(std::string& content);
  bool inside(Pieces& pieces);
  bool after();

  ReasoningTags tags_;
  bool open_;
  Phase phase_ = Phase::kStart;
  std::string buffer_;  // undecided
  bool any_reasoning_ = false;
};

}  // namespace levada::reply
