// What: history_text(), the rounds of a flywheel as a table for people.
// Owner: a pure function.
// Thread: any.
// Invariant: a line that is no round (cut off, of another version) is passed over, never an error.
// Format: flywheel.jsonl, docs/recipes.md.
#pragma once

#include <istream>
#include <string>

namespace levada::up {

// The newest `most` rounds of `lines`, oldest first, under a heading; empty if there is none.
std::string history_text(std::istream& lines, std::size_t most);

}  // namespace levada::up
