#include "serve/reply_blocks.h"

#include <utility>

namespace levada::serve {

using Kind = reply::Piece::Kind;

ReplyBlocks::ReplyBlocks(const CallSpec& call) : call_ids_(call.call_ids) {
  if (call.form) parser_.emplace(*call.form);
}

void ReplyBlocks::open(ReplyBlock block, std::vector<BlockStep>& steps) {
  close(steps);
  blocks_.push_back(std::move(block));
  is_open_ = true;
  steps.push_back({BlockStep::Kind::kOpened, blocks_.size() - 1});
}

void ReplyBlocks::close(std::vector<BlockStep>& steps) {
  if (std::exchange(is_open_, false)) steps.push_back({BlockStep::Kind::kClosed, blocks_.size() - 1});
}

void ReplyBlocks::add(const reply::Piece& piece, std::vector<BlockStep>& steps) {
  if (piece.kind == Kind::kCall) {
    open({piece.kind, {}, piece.name, call_ids_ + "_" + std::to_string(calls_++)}, steps);
  } else if (piece.text.empty()) {
    return;
  } else if (!is_open_ || blocks_.back().kind != piece.kind) {
    open({piece.kind, {}, {}, {}}, steps);
  }
  blocks_.back().text += piece.text;
  steps.push_back({BlockStep::Kind::kMore, blocks_.size() - 1, piece.text});
  if (piece.kind == Kind::kCall) close(steps);  // it comes whole
}

std::vector<BlockStep> ReplyBlocks::take(std::string_view text, bool last) {
  reply::Pieces pieces;
  if (parser_) {
    parser_->push(text, pieces);
    if (last) parser_->finish(pieces);
  } else {
    reply::append_text(pieces, Kind::kContent, text);
  }
  std::vector<BlockStep> steps;
  for (const reply::Piece& piece : pieces) add(piece, steps);
  if (!last) return steps;
  if (blocks_.empty()) open({}, steps);
  close(steps);
  return steps;
}

}  // namespace levada::serve
