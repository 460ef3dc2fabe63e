// What: checkpoints of a training run: run_id-step{N} folders and the run_id-latest link beside them.
// Owner: the trainer. Private to the room.
// Thread: the trainer's.
// Invariant: a folder with a step's name is complete and durable; `latest` moves only afterwards. What isn't complete has
// another name and is removed by the next save. A checkpoint is an exported draft as well.
// Format: docs/formats/checkpoint.md.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "train/draft_state.h"
#include "train/options.h"

namespace levada::train {

// What must not change between save and resume.
struct Contract {
  const Options& options;
  const model::DraftConfig& config;
  std::string tables;  // FrozenTables::identity()
  std::int64_t world = 1;
};

Status write_export(const std::filesystem::path& folder, const model::DraftConfig& config, const DraftState& state);

// Returns the new folder. Older ones beyond options.max_checkpoints go, as do those of later steps.
Result<std::filesystem::path> save_checkpoint(const Contract& contract, const DraftState& state);

// Fills `state`. kInvalidArgument naming the first field of the contract that differs; kDataLoss for damage.
Status load_checkpoint(const std::filesystem::path& folder, const Contract& contract, DraftState& state);

}  // namespace levada::train
