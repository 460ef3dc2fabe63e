// What: ReplyBlocks, one answer's text as a row of blocks: content, reasoning, calls. /v1/responses and /v1/messages tell
// answers so.
// Owner: their formats.
// Thread: the I/O thread.
// Invariant: blocks follow each other, the last alone can be open, neighbours are of different kinds unless both are calls;
// those of a streamed answer are those of the whole one, and there is at least one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reply/parser.h"
#include "serve/call_spec.h"

namespace levada::serve {

struct ReplyBlock {
  reply::Piece::Kind kind = reply::Piece::Kind::kContent;
  std::string text;           // of a call: its arguments, one JSON object
  std::string name, call_id;  // of a call
};

struct BlockStep {
  enum class Kind { kOpened, kMore, kClosed } kind;
  std::size_t block;
  std::string text = {};  // of kMore
};

class ReplyBlocks {
 public:
  explicit ReplyBlocks(const CallSpec& call);

  // What this text comes to; `last`: it is the answer's end, and the last block is closed.
  std::vector<BlockStep> take(std::string_view text, bool last);
  const std::vector<ReplyBlock>& blocks() const { return blocks_; }
  bool called() const { return calls_ > 0; }

 private:
  void add(const reply::Piece& piece, std::vector<BlockStep>& steps);
  void open(ReplyBlock block, std::vector<BlockStep>& steps);
  void close(std::vector<BlockStep>& steps);

  std::optional<reply::Parser> parser_;  // none: all text is content
  std::string call_ids_;
  std::vector<ReplyBlock> blocks_;
  bool is_open_ = false;
  int calls_ = 0;
};

}  // namespace levada::serve
