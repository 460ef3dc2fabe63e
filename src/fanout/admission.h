// What: the policy of what is captured next, and what makes room for it. Pure but for upkeep(), which takes edges.
// Owner: free functions on RunState.
// Thread: the Machine's.
// Invariant: nothing is captured that does not fit. Order: retries (their slot is kept); then positions of some next
// quantum, smallest cursor first; then waited-for positions; then prefetch, both round-robin over consumers. The last two
// only if what remains still covers every next quantum. Shedding happens for a next quantum alone, and only as much as
// it needs. sim/model_check_test.cc proves for small configurations that every consumer can always finish.
// Cost: a claim scans the windows of all consumers.
#pragma once

#include <cstdint>
#include <optional>

#include "fanout/run_state.h"

namespace levada::fanout {

struct Pick {
  std::int64_t position = 0;
  std::int64_t priority = 0;  // as in CaptureOrder
  std::int64_t turn_of = -1;  // the consumer whose round-robin turn it used up, or -1
};

// What the next claim gets, if anything may be captured now.
std::optional<Pick> next_capture(const RunState& state, std::int64_t now_us);

// Why next_capture() has nothing although something is queued: the limit that would be passed, next quanta included.
Shortage shortage(const RunState& state, std::int64_t now_us);

// After any change: evicts what nobody keeps, queues what somebody wants, sheds for next quanta that do not fit, and moves
// the run's status.
void upkeep(RunState& state, std::int64_t now_us);

}  // namespace levada::fanout
