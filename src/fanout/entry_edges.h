// What: the edges of the entry state machine, one function each.
// Owner: free functions on RunState.
// Thread: the Machine's.
// Invariant: a generation is used for one enqueueing only; whatever may have been written is live (counted) until
// finish_removal. Each function requires the state its arrow starts from.
//
//            enqueue                    claim                mark_committing          complete
//   absent ----------> queued ----------------> capturing ---------------> committing ---------> ready
//    ^ ^ ^ <---------- dequeue                  |  ^  |  |                     |                 |  |
//    | | |                                      |  |  |  |                     |                 |  |
//    | | |      keep_for_retry (reply lost) ----+--+  |  +------ burn ---------+------- burn ----+  | evict
//    | | |                                     claim  |          (generation -> garbage,            v
//    | | +--------------------------------------------+           entry -> absent)              evicting
//    | +-- forgive -- failed <-- give_up -- absent                                                  |
//    +------------------------------------ finish_removal ------------------------------------------+
#pragma once

#include <cstdint>
#include <string>

#include "fanout/run_state.h"

namespace levada::fanout {

void enqueue(RunState& state, std::int64_t p);
void dequeue(RunState& state, std::int64_t p);
// Reserves a slot and the exact bytes; a capture kept for a retry keeps the slot it has. A new nonce each time.
void claim(RunState& state, std::int64_t p, const std::string& worker, const std::string& server, std::int64_t claim_id,
           std::int64_t now_us);
// The reply was lost: the same generation is sent again after the backoff, in the same slot.
void keep_for_retry(RunState& state, std::int64_t p, std::int64_t now_us);
// An attempt at its live generation, given up before, may still be writing: no removal before capture_timeout.
void await_late_write(RunState& state, std::int64_t p, std::int64_t now_us);
void mark_committing(RunState& state, std::int64_t p, RefPtr ref, std::int64_t bytes);
void complete(RunState& state, std::int64_t p, std::int64_t now_us);
void evict(RunState& state, std::int64_t p, std::int64_t now_us);
void finish_removal(RunState& state, std::int64_t p, std::int64_t now_us);
// What this generation wrote becomes garbage and the entry absent. `quarantined`: a late write is possible, so that the
// removal waits for capture_timeout.
void burn(RunState& state, std::int64_t p, bool quarantined, std::int64_t now_us);
// From absent, after burn: no retries are left.
void give_up(RunState& state, std::int64_t p, const std::string& error);
void forgive(RunState& state, std::int64_t p);

}  // namespace levada::fanout
