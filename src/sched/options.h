// What: the scheduler's options; defaults are written here and nowhere else.
// Owner: cli fills it from flags and recipe.
// Thread: immutable after start.
// Invariant: names are SGLang's flag spellings with underscores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace levada::sched {

struct Options {
  std::int64_t max_running_requests = 64;
  std::int64_t max_queued_requests = 1024;  // beyond: refused with 429 semantics (kResourceExhausted)
  std::int64_t chunked_prefill_size = 512;  // tokens per step; -1: whole prompts
  std::int64_t max_prefill_tokens = 16384;  // M1 rem_input
  std::string schedule_policy = "fcfs";     // fcfs, lpm
  // Requests' priorities count; off: they are ignored. Preemption: a waiting request takes the place of a running one
  // if its priority is higher by more than the threshold.
  bool enable_priority_scheduling = false;
  bool schedule_low_priority_values_first = false;
  std::int64_t priority_scheduling_preemption_threshold = 10;
  // Above 1: admit later, retract less often; below: the other way round.
  double schedule_conservativeness = 1.0;
  // Who drafts: auto (the draft model if one is loaded; n-grams where the text repeats), DFLASH (the model alone), NGRAM, none.
  std::string speculative_algorithm = "auto";
  std::int64_t speculative_num_draft_tokens = 0;  // of a block, the token it continues included; 0: the draft's
  bool speculative_adaptive = true;               // off: every step verifies as many as there are
  bool disable_radix_cache = false;
  bool disable_overlap_schedule = false;  // off: one-step lookahead
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::sched
