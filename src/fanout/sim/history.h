// What: History, one simulated fan-out run from a seed: chaos for a while, then calm until the end.
// Owner: tests.
// Thread: the test's.
// Invariant: run() ends with every surviving consumer finished on exactly its positions, everything removed and every
// entry absent; otherwise problems() says what went wrong and with which seed it can be seen again.
// Faults (numbers of spec §7.2): lost requests and replies 1 12 20 24, registry and producer crashes 10 11, consumer crashes
// before and after ack 15 16, pauses and zombies 14 18 19, servers lost or restarted 2 3, failed captures 4 9, repeated
// completes 22, failed removals 23, late writes 25, tight limits and pressure 13 47.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fanout/sim/actors.h"

namespace levada::fanout::sim {

struct HistoryResult {
  std::vector<std::string> problems;
  std::int64_t steps = 0;
  std::int64_t restarts = 0;
  std::int64_t recaptures = 0;
};

HistoryResult run_history(std::uint64_t seed, std::int64_t chaos_steps);

}  // namespace levada::fanout::sim
