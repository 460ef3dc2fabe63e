// What: run_peer(), what every rank but the first of a consumer's trainer does: train the samples that rank 0 deals.
// Owner: cli calls it in a process that RankProcesses forked.
// Thread: blocks its caller.
// Invariant: it speaks to nobody but rank 0 and writes nothing; it ends when rank 0 does.
// How the ranks share a step: dealt_source.h.
#pragma once

#include "train/consumer_run.h"

namespace levada::train {

// `request`: rank 0's, with this rank's `ranks`. Ok when rank 0 has ended.
Status run_peer(const ConsumerRunRequest& request);

// At rank 0, once the run's length is known and before its first sample: lets the peers begin.
Status start_peers(SocketCollective& ranks, std::int64_t total_steps);

}  // namespace levada::train
