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
  if (phase_ == Phase::kFree) {
    if (token == reasoning_.end) phase_ = Phase::kBound;
    return {};
  }
  if (phase_ == Phase::kStart) {
    phase_ = token == reasoning_.begin ? Phase::kFree : Phase::kBound;
    if (phase_ == Phase::kFree) return {};
  }
  return matcher_.accept(token);
}

}  // namespace levada::serve
