// What: the prepared samples on disk, so that a producer that starts again has the same samples, ids and plan without
// asking the target anything.
// Owner: free functions.
// Thread: any.
// Invariant: the file is there whole or not at all; a damaged one is kDataLoss, one made from other prompts or options is
// refused with the name of what differs, and neither is ever overwritten silently.
// Format: docs/formats/prompts.md ("prepared samples", version 1).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "producer/answering.h"

namespace levada::producer {

// Everything that decides what the samples are: name -> value.
using MadeFrom = std::map<std::string, std::string>;

Status write_prepared(const std::filesystem::path& file, const MadeFrom& made_from, const Preparation& preparation);

// nullopt if there is no such file. kFailedPrecondition naming the field if it was made from something else.
Result<std::optional<Preparation>> read_prepared(const std::filesystem::path& file, const MadeFrom& made_from);

}  // namespace levada::producer
