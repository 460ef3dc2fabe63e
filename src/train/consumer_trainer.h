// What: the trainer of a consumer's process: begun afresh or gone on with, as its output folder says.
// Owner: consumer_run.cc and peer_run.cc. Private to the room.
// Thread: the caller's.
// Invariant: every rank of a consumer finds the same state.
// Checkpoints: docs/formats/checkpoint.md.
#pragma once

#include "train/consumer_run.h"

namespace levada::train {

// The link to a consumer's newest checkpoint, whether there is one or not.
std::filesystem::path latest_checkpoint(const Options& options);

// Goes on from the newest checkpoint if there is one, else from request.init_from or fresh weights. `options`: the
// request's, with total_steps known.
Result<std::unique_ptr<DflashTrainer>> open_trainer(const ConsumerRunRequest& request, const Options& options);

}  // namespace levada::train
