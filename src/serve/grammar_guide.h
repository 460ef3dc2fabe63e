// What: GrammarGuide, a request's Matcher as the scheduler asks for it; a model that thinks first is left free until then.
// Owner: its core::Request.
// Thread: the scheduler's.
// Invariant: the tokens of the reasoning never reach the Matcher; what follows it, all.
//
//   kFree (the prompt opened the reasoning) ──its end──> kBound
//   kStart ──first token opens it──> kFree; any other token──> kBound
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/token_guide.h"
#include "grammar/matcher.h"

namespace levada::serve {

// How a model's reasoning begins and ends, where both are single tokens.
struct ReasoningTokens {
  text::Token begin = -1, end = -1;
  bool open = false;  // the prompt opened it already
};

class GrammarGuide final : public core::TokenGuide {
 public:
  explicit GrammarGuide(std::shared_ptr<const grammar::Grammar> grammar, std::optional<ReasoningTokens> reasoning = {});

  bool allowed(std::span<std::uint32_t> words) override;
  Status accept(core::Token token) override;
  void rollback(std::int32_t tokens) override;

 private:
  enum class Phase : std::uint8_t { kStart, kFree, kBound };
  grammar::Matcher matcher_;
  ReasoningTokens reasoning_;
  Phase phase_ = Phase::kBound;
  std::vector<Phase> before_;  // each accepted token
};

}  // namespace levada::serve
