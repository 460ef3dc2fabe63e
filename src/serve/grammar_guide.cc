#include "serve/grammar_guide.h"

#include <utility>

namespace levada::serve {

GrammarGuide::GrammarGuide(std::shared_ptr<const grammar::Grammar> grammar, std::optional<ReasoningTokens> reasoning)
    : matcher_(std::move(grammar)), reasoning_(reasoning.value_or(ReasoningTokens{})) {
  if (reasoning) phase_ = reasoning->open ? Phase::kFree : Phase::kStart;
}

bool GrammarGuide::allowed(std::span<std::uint32_t> words) {
  if (phase_ == Phase::kFree) return false;
  if (!matcher_.fill(words)) return false;
  if (phase_ == Phase::kStart) words[static_cast<std::size_t>(reasoning_.begin) / 32] |= 1u << (reasoning_.begin % 32);
  return true;
}

Status GrammarGuide::accept(core::Token token) {
  before_.push_back(phase_);
  if (phase_ == Phase::kFree) {
    if (token == reasoning_.end) phase_ = Phase::kBound;
    return {};
  }
  if (phase_ == Phase::kStart) {
    phase_ = token == reasoning_.begin ? Phase::kFree : Phase::kBound;
    if (phase_ == Phase::kFree) return {};
  }
  const Status accepted = matcher_.accept(token);
  if (!accepted.ok()) {  // it changed nothing
    phase_ = before_.back();
    before_.pop_back();
  }
  return accepted;
}

void GrammarGuide::rollback(std::int32_t tokens) {
  for (; tokens > 0; --tokens) {
    const Phase after = phase_;
    phase_ = before_.back();
    before_.pop_back();
    const bool free = phase_ == Phase::kFree || (phase_ == Phase::kStart && after == Phase::kFree);
    if (!free) matcher_.rollback(1);
  }
}

}  // namespace levada::serve
