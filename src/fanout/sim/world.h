// What: World, what surrounds the actors of a simulated run: the registry with its database and an unreliable line to it,
// capture servers with their objects and late writers, the clock, and the dice.
// Owner: one History.
// Thread: the test's.
// Invariant: one seed, one history. Every call of the registry is committed before its answer is seen, or lost together with
// its effect in a crash; after each, the audit is clean and nothing went backwards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "fanout/machine.h"
#include "fanout/sim/memory_rows.h"

namespace levada::fanout::sim {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  // 0 … n-1.
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

// One object set, as (server, position, generation) names it; there or not.
struct ObjectKey {
  std::int64_t server = 0;
  std::int64_t position = 0;
  std::int64_t generation = 0;
  auto operator<=>(const ObjectKey&) const = default;
};

class World {
 public:
  World(std::shared_ptr<const RunConfig> config, std::uint64_t seed);

  Dice dice;
  std::int64_t now_us = 1'000'000;
  bool faults = true;
  std::vector<std::string> problems;
  void expect(bool holds, std::string_view problem, std::string_view subject = {}) {
    if (!holds) problems.push_back(std::string(problem) + std::string(subject));
  }

  const RunConfig& config() const { return *config_; }
  const RunState& state() const { return machine_->state(); }

  // The answer, or nullopt if none came: then the call happened or not.
  template <class R>
  std::optional<Outcome<typename R::Reply>> call(const R& request) {
    if (faults && dice.one_in(40)) return std::nullopt;  // lost on the way there
    rewind_allowed_ = std::is_same_v<R, ResumeRequest>;
    auto outcome = machine_->call(request, now_us);
    if (faults && dice.one_in(120)) {  // killed before the commit
      crash();
      return std::nullopt;
    }
    settle();
    if (faults && dice.one_in(300)) {  // killed after it
      crash();
      return std::nullopt;
    }
    if (faults && dice.one_in(40)) return std::nullopt;  // lost on the way back
    return outcome;
  }
  // The registry dies and is started again on what was committed.
  void crash();
  void advance_us(std::int64_t delta_us);

  // --- capture servers ---
  static constexpr std::int64_t kServers = 2;
  std::map<ObjectKey, bool> objects;               // those that exist
  std::map<ObjectKey, std::int64_t> late_writers;  // will write at this time
  // The journal of servers that keep one: the generation of a position that a server answered for last. It never writes
  // that one, or an older one, again.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> answered;
  std::uint64_t incarnation[kServers] = {1, 1};
  bool exists(const ObjectKey& key) const { return objects.count(key) != 0; }
  // A restarted server has lost every object and every writer.
  void restart_server(std::int64_t server);
  // What consumer `c` reads at present, and until when it may use it: nobody may remove it before.
  void begin_read(std::size_t c, const ObjectKey& key, std::int64_t until_us) { reads_[c] = {key, until_us}; }
  void end_read(std::size_t c) { reads_.erase(c); }
  void remove(const ObjectKey& key);

  std::int64_t restarts = 0;

 private:
  // Commits what changed and checks what must hold between any two commits.
  void settle();
  void land_late_writes();

  std::shared_ptr<const RunConfig> config_;
  MemoryRows database_;
  std::unique_ptr<Machine> machine_;
  std::map<std::size_t, std::pair<ObjectKey, std::int64_t>> reads_;  // by consumer
  std::vector<std::int64_t> generations_;
  std::vector<EntryState> states_;
  std::vector<std::int64_t> cursors_;
  bool rewind_allowed_ = false;
};

}  // namespace levada::fanout::sim
