// What: the history of a flywheel: its rounds as a table for people, and its file kept short.
// Owner: functions without state; the file is the flywheel's.
// Thread: any.
// Invariant: a line that is no round (cut off, of another version) is passed over, never an error.
// Format: flywheel.jsonl, docs/recipes.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>

#include "base/status.h"

namespace levada::up {

// The newest `most` rounds of `lines`, oldest first, under a heading; empty if there is none.
std::string history_text(std::istream& lines, std::size_t most);

// Of a file of more than `most_bytes` the newer half of its lines stays, written whole. A file that isn't there is short.
Status shorten_history(const std::filesystem::path& file, std::uintmax_t most_bytes);

}  // namespace levada::up
