#include "sched/options.h"

namespace levada::sched {

void describe(OptionTable& table, Options& options) {
  constexpr double kMany = 1e9;
  table.begin_room("sched");
  table.add("max_running_requests", &options.max_running_requests, "requests computed at the same time")
      .range(1, 65536);
  table
      .add("max_queued_requests", &options.max_queued_requests,
           "requests that may wait beyond the running ones; further ones are refused")
      .range(0, kMany);
  table
      .add("chunked_prefill_size", &options.chunked_prefill_size,
           "prompt tokens computed per step, rounded up to one page; -1: whole prompts")
      .range(-1, kMany);
  table
      .add("max_prefill_tokens", &options.max_prefill_tokens,
           "prompt tokens per step over all requests when prompts are not chunked")
      .range(1, kMany);
  table.add("schedule_policy", &options.schedule_policy, "order of waiting requests").choices({"fcfs", "lpm"});
  table.add("enable_priority_scheduling", &options.enable_priority_scheduling,
            "requests of higher priority are computed first; off: their priorities are ignored");
  table.add("schedule_low_priority_values_first", &options.schedule_low_priority_values_first,
            "a smaller number is the higher priority");
  table
      .add("priority_scheduling_preemption_threshold", &options.priority_scheduling_preemption_threshold,
           "a waiting request takes a running one's place if its priority is higher by more than this")
      .range(0, kMany);
  table
      .add("schedule_conservativeness", &options.schedule_conservativeness,
           "scales the share of their remaining output that running requests are expected to need (0.7 at 1.0)")
      .range(0, 10);
  table
      .add("speculative_algorithm", &options.speculative_algorithm,
           "who drafts: auto (the draft model if there is one; n-grams where the text repeats), DFLASH, EAGLE3, "
           "NGRAM, none")
      .choices({"auto", "DFLASH", "EAGLE3", "NGRAM", "none"});
  table
      .add("speculative_num_draft_tokens", &options.speculative_num_draft_tokens,
           "tokens of a verified block, the newest known one included; 0: as the draft was trained, 8 for n-grams")
      .range(0, 64);
  table.add("speculative_adaptive", &options.speculative_adaptive,
            "choose the block from measured acceptance and step times; off: always the largest");
  table.add("disable_radix_cache", &options.disable_radix_cache, "do not reuse the KV of common prefixes");
  table.add("disable_overlap_schedule", &options.disable_overlap_schedule,
            "build a step only after the one before has been computed");
}

}  // namespace levada::sched
