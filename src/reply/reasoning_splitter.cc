#include "reply/reasoning_splitter.h"

#include <utility>

#include "reply/tag_search.h"

namespace levada::reply {

ReasoningSplitter::ReasoningSplitter(ReasoningTags tags, bool open) : tags_(std::move(tags)), open_(open) {}

void ReasoningSplitter::push(std::string_view text, Pieces& pieces, std::string& content) {
  buffer_ += text;
  for (bool more = true; more && phase_ != Phase::kOutside;) {
    switch (phase_) {
      case Phase::kStart: more = start(content); break;
      case Phase::kInside: more = inside(pieces); break;
      case Phase::kAfter: more = after(); break;
      case Phase::kOutside: break;
    }
  }
  if (phase_ != Phase::kOutside) return;
  content += buffer_;
  buffer_.clear();
}

bool ReasoningSplitter::start(std::string&) {
  const std::size_t first = buffer_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  const std::string_view rest = std::string_view(buffer_).substr(first);
  if (rest.starts_with(tags_.begin)) {
    buffer_.erase(0, first + tags_.begin.size());
    phase_ = Phase::kInside;
  } else if (std::string_view(tags_.begin).starts_with(rest)) {
    return false;
  } else {
    phase_ = open_ ? Phase::kInside : Phase::kOutside;
  }
  return true;
}

bool ReasoningSplitter::inside(Pieces& pieces) {
  if (!any_reasoning_) buffer_.erase(0, std::min(buffer_.find_first_not_of(kBlanks), buffer_.size()));
  const std::size_t at = buffer_.find(tags_.end);
  std::string_view told(buffer_);
  told = told.substr(0, at != std::string::npos ? at : buffer_.size() - held_for(buffer_, tags_.end));
  const std::size_t last = told.find_last_not_of(kBlanks);  // blanks before the end tag are its own
  told = told.substr(0, last == std::string_view::npos ? 0 : last + 1);
  any_reasoning_ = any_reasoning_ || !told.empty();
  append_text(pieces, Piece::Kind::kReasoning, told);
  if (at == std::string::npos) {
    buffer_.erase(0, told.size());
    return false;
  }
  buffer_.erase(0, at + tags_.end.size());
  phase_ = Phase::kAfter;
  return true;
}

bool ReasoningSplitter::after() {
  const std::size_t first = buffer_.find_first_not_of(kBlanks);
  if (first == std::string::npos) {
    buffer_.clear();
    return false;
  }
  buffer_.erase(0, first);
  phase_ = Phase::kOutside;
  return true;
}

void ReasoningSplitter::finish(Pieces& pieces, std::string& content) {
  if (phase_ == Phase::kInside || (phase_ == Phase::kStart && open_)) {
    append_text(pieces, Piece::Kind::kReasoning, buffer_);
  } else {
    content += buffer_;
  }
  buffer_.clear();
}

}  // namespace levada::reply
