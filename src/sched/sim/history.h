// What: run_history(), one seed of random traffic against a Brain and a ScriptedModel, judged request by request.
// Owner: tests.
// Thread: one.
// Invariant: everything random comes from the seed, so a failing seed replays exactly. Judged: every answer equals the
// solo reference (or is a prefix of it when aborted or failed), one finish each, audit clean after the history, all
// pages back; freed pages are poisoned after each event.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/request.h"
#include "text/tokenizer.h"

namespace levada::sched::sim {

struct HistoryReport {
  std::string failure;  // empty: all is well; else what, for which request
  std::uint64_t plans_hash = 0;
  std::uint64_t steps = 0, retractions = 0, evicted_tokens = 0;
  std::int32_t requests = 0, aborted = 0, failed = 0, cached_tokens = 0, stopped_by_string = 0;
  std::int32_t logprobs = 0, hidden_rows = 0;
  std::int32_t guided_tokens = 0;
  std::int32_t verified_drafts = 0, accepted_drafts = 0, accepted_repeats = 0, swaps = 0;
  std::int32_t families_cut = 0;  // prompts with several choices of which some were aborted and others answered

  // The counts; neither failure nor hash.
  void add(const HistoryReport& other);
};

// All ids lie below.
inline constexpr std::int32_t kVocab = 384;
inline constexpr core::Token kEos = 2;

// A fresh guide of the request, always the same for one id.
using Guides = std::function<std::shared_ptr<core::TokenGuide>(core::RequestId)>;

// A null tokenizer: ids only. Without `guides` they are ScriptedGuides.
HistoryReport run_history(std::uint64_t seed, const text::Tokenizer* tokenizer, Guides guides = {});

}  // namespace levada::sched::sim
