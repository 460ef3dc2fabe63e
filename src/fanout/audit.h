// What: audit(), every invariant of the fan-out state that can be seen in one state, recounted from its rows.
// Owner: free function; tests, simulators and /debug call it.
// Thread: the Machine's.
// Invariant: pure. The numbers in its messages are those of spec §7.1.
// Invariants about two states (cursors and generations over time) are the simulator's (sim/history.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fanout/run_state.h"

namespace levada::fanout {

// One sentence per broken invariant; empty: the state is sound.
std::vector<std::string> audit(const RunState& state, std::int64_t now_us);

}  // namespace levada::fanout
