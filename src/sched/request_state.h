// What: RequestState, everything the Brain knows of one request, and its lengths, kept apart by name (law 1).
// Owner: the Brain, from submit() until the last plan containing it has been applied.
// Thread: the scheduler's.
// Invariant: computed_tokens <= planned_tokens <= tokens.size() + pending_samples; verify() knows what each phase
// needs.
//
//   kWaiting ──admit──> kPrefilling ──last chunk planned──> kRunning ──finish──> kDraining ──last plan applied──> gone
//      ^  (no pages)        │                                  │        (no new plans, delta sent)
//      └── retract, once no plan is in flight ─────────────────┘     abort and failure go to kDraining from anywhere
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/request.h"
#include "core/step_plan.h"
#include "kv/namespace_table.h"
#include "sched/finish_rule.h"
#include "sched/request_pages.h"
#include "spec/ngram_drafter.h"
#include "spec/pace.h"
#include "text/stream_decoder.h"

namespace levada::sched {

enum class Phase : std::uint8_t { kWaiting, kPrefilling, kRunning, kDraining };

struct RequestState {
  RequestState(core::Request the_request, kv::NamespaceRef ns, StopRules rules, const text::Tokenizer* tokenizer);

  // What every sample row of the request says; where it lies a step copies from, beside the id that it reads first.
  core::SampleRow sample_constants;
  core::Request request;
  kv::NamespaceRef name_space;
  StopRules stop_rules;
  std::optional<text::StreamDecoder> decoder;
  std::vector<core::Token> tokens;  // prompt, then accepted output

  Phase phase = Phase::kWaiting;
  bool retract_pending = false;  // goes back to waiting when no plan is in flight
  bool may_commit = true;        // its KV may be kept as cache
  std::int64_t priority = 0;     // larger goes first
  std::uint64_t arrival = 0;     // order of submission
  std::uint64_t admission = 0;   // order of the present admission; the last one is retracted first
  std::int32_t retractions = 0;

  RequestPages pages;
  std::int32_t input_tokens = 0;     // prefill target of the present admission
  std::int32_t planned_tokens = 0;   // KV written once every submitted plan is done
  std::int32_t computed_tokens = 0;  // KV written by applied plans
  std::int32_t pending_samples = 0;  // tokens asked for in plans not applied yet
  std::int32_t plans_in_flight = 0;
  core::StepId last_plan{};
  std::int32_t last_sample = -1;  // index of its sample in last_plan

  // Rows of the prompt whose next token's log probability is still to be planned, and of which hidden states are; what
  // has come of either and is not told yet.
  std::int32_t score_from = 0, score_end = 0, hidden_from = 0, hidden_end = 0;
  std::vector<core::TokenLogprob> fresh_scores;
  std::vector<float> fresh_hidden;
  std::vector<RequestState*> followers;  // wait until its prompt is computed
  RequestState* leader = nullptr;        // whose follower it is

  // Speculation. Drafts are guesses at the tokens behind the newest known one; a request that has some, or wants some, waits
  // for its newest token before it is planned again.
  std::vector<core::Token> drafts;          // to be verified by its next step
  std::int32_t propose = 0;                 // wanted of the next step
  spec::Track track, ngram_track;           // how the model's have fared, and those of n-grams
  bool drafts_repeat = false;               // those planned last came from n-grams
  std::optional<spec::NgramDrafter> ngram;  // made when first needed
  std::optional<core::Token> ngram_guess;   // at the token behind the known ones
  std::int32_t ngram_streak = 0;            // guesses in a row that were right
  std::int32_t draft_from = 0;              // see core::PlanSlice; of draft_version
  core::DraftVersion draft_version = core::kNoDraft;
  core::SpeculationCount speculation;

  bool ever_admitted = false;
  std::int32_t cached_tokens = 0;  // at first admission

  std::int32_t prompt_tokens() const { return static_cast<std::int32_t>(request.prompt.size()); }
  std::int32_t known_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t produced() const { return known_tokens() - prompt_tokens(); }
  std::int32_t new_tokens_left() const { return stop_rules.max_new_tokens - produced() - pending_samples; }
  // The token that ends it by length is in flight already, unless something ends it before.
  bool last_token_planned() const { return pending_samples > 0 && new_tokens_left() <= 0; }
  // The first row that can't come from the cache: the answer's first token comes from the logits of the last known one,
  // and a cached row has neither log probabilities nor hidden states.
  std::int32_t first_needed_row() const;
  // Its prompt is computed for what it says of it, and no token is wanted.
  bool prompt_only() const { return request.sampling.max_new_tokens == 0; }
  // What a guide allows next depends on the newest token, so a guided row waits for it.
  bool wants_decode() const {
    return phase == Phase::kRunning && !retract_pending && new_tokens_left() > 0 &&
           (!request.guide || pending_samples == 0);
  }
  bool speculates() const { return !drafts.empty() || propose > 0; }
  text::StreamDecoder* text_decoder() { return decoder ? &*decoder : nullptr; }
  // The cache key of its first `count` tokens. By bigrams it needs the token behind them, too: as far as that is known.
  kv::TokenKey key(std::int32_t count, bool bigrams) const {
    const auto spelt = std::min(tokens.size(), static_cast<std::size_t>(count) + (bigrams ? 1 : 0));
    return {std::span(tokens).first(spelt), name_space.id(), bigrams};
  }

  // kInternal naming the request and the invariant when the lengths or the pages contradict the phase.
  Status verify(std::int32_t page_size_tokens) const;
};

}  // namespace levada::sched
