#include "fanout/sim/history.h"

#include <algorithm>

namespace levada::fanout::sim {

namespace {

constexpr std::int64_t kCalmSteps = 20'000;

// From the tightest limits that are admitted to roomy ones.
std::shared_ptr<const RunConfig> random_config(Dice& dice) {
  auto config = std::make_shared<RunConfig>();
  config->run_id = "run";
  config->store_id = "store";
  config->contract_digest = "contract";
  config->source_digest = "plan";
  config->bytes_per_token = 8;
  config->feature_names = {"hidden_states", "input_ids"};
  config->capture_reservation_bytes = 100;
  const std::int64_t total = dice.between(3, 14);
  for (std::int64_t p = 0; p < total; ++p) {
    config->sources.push_back({"run:p" + std::to_string(p), dice.between(1, 10)});
  }
  std::int64_t quanta = 0;
  const std::int64_t consumers = dice.between(1, 4);
  for (std::int64_t c = 0; c < consumers; ++c) {
    ConsumerSpec spec;
    spec.consumer_id = std::string(1, static_cast<char>('a' + c));
    spec.quantum = dice.between(1, 3);
    spec.lookbehind = dice.between(0, 2);
    spec.lookahead = spec.quantum - 1 + dice.between(0, 6);
    spec.prefetch_depth = dice.between(0, spec.lookahead + 1);
    spec.max_outstanding = spec.quantum + dice.between(0, 4);
    quanta += spec.quantum;
    config->consumers.push_back(spec);
  }
  config->max_live_refs = quanta + (dice.one_in(3) ? 0 : dice.between(0, 8));
  config->max_live_bytes = config->max_entry_bytes() * (quanta + (dice.one_in(3) ? 0 : dice.between(0, 8)));
  if (dice.one_in(4)) config->max_lead = dice.between(3, 6);
  // Captures that fail are retried for ever here: what a failed position does to a run is a test of its own.
  config->max_capture_retries = 1'000'000;
  config->servers_keep_journal = dice.one_in(2);
  return config;
}

class History {
 public:
  explicit History(std::uint64_t seed) : setup_(seed), world_(random_config(setup_), seed + 1), producer_(world_) {
    for (std::size_t c = 0; c < world_.config().consumers.size(); ++c) consumers_.emplace_back(world_, c);
  }

  HistoryResult run(std::int64_t chaos_steps) {
    HistoryResult result;
    for (std::int64_t i = 0; i < chaos_steps && world_.problems.empty(); ++i, ++result.steps) chaos_step();
    world_.faults = false;
    for (std::int64_t i = 0; i < kCalmSteps && world_.problems.empty() && !ended(); ++i, ++result.steps) calm_step();
    if (world_.problems.empty()) check_end();
    result.problems = world_.problems;
    result.restarts = world_.restarts;
    result.recaptures = world_.state().count(Count::kRecaptures);
    return result;
  }

 private:
  void chaos_step() {
    Dice& dice = world_.dice;
    const std::int64_t event = dice.below(400);
    if (event == 0) {
      producer_.crash();
    } else if (event == 1) {
      restart_server();
    } else if (event <= 3) {
      any_consumer().crash();
    } else if (event <= 5) {
      any_consumer().pause_until(world_.now_us + dice.between(1, 400) * 1'000'000);
    }
    act();
    const bool long_silence = dice.one_in(60);
    world_.advance_us(dice.below(long_silence ? 40'000'000 : 400'000));
  }

  // Nobody stays behind for ever: pauses end, quarantines pass. Quickly where there is only a quarantine to wait for.
  void calm_step() {
    act();
    const bool all_done = std::all_of(consumers_.begin(), consumers_.end(), [](const auto& c) { return c.finished(); });
    const bool quarantine = !world_.state().garbage.empty();
    world_.advance_us(all_done ? 20'000'000 : quarantine ? 1'000'000 : 200'000);
  }

  void act() {
    if (world_.dice.one_in(2)) {
      producer_.step();
    } else {
      any_consumer().step();
    }
  }

  SimConsumer& any_consumer() {
    return consumers_[static_cast<std::size_t>(world_.dice.below(static_cast<std::int64_t>(consumers_.size())))];
  }

  // Half of the time nobody tells the registry: then readers find out (report_lost).
  void restart_server() {
    const std::int64_t server = world_.dice.below(World::kServers);
    world_.restart_server(server);
    if (world_.dice.one_in(2)) (void)world_.call(ServerLostRequest{url_of(server), world_.incarnation[server]});
  }

  bool ended() const { return world_.state().run.status == RunStatus::kCompleted && world_.late_writers.empty(); }

  void check_end() {
    const RunState& state = world_.state();
    world_.expect(ended(), "19: the run did not end; status " + std::string(to_string(state.run.status)));
    for (std::size_t c = 0; c < consumers_.size(); ++c) {
      const ConsumerRow& row = state.consumers[c].row;
      const std::string name = "consumer " + row.consumer_id + " ";
      world_.expect(row.state == ConsumerState::kCompleted, name + "is " + std::string(to_string(row.state)));
      world_.expect(row.cursor == consumers_[c].usable(), name + "ends at " + std::to_string(row.cursor));
      const auto& trained = consumers_[c].trained();
      // 12 and 14: exactly its solo run's sequence. A process that died after its last acknowledgement trains no more.
      std::vector<std::int64_t> solo;
      for (std::int64_t p = 0; p < row.cursor; ++p) solo.push_back(p);
      world_.expect(trained == solo || trained.empty(), name + "was not trained on its positions once each, in order");
    }
    if (!ended()) return;
    world_.expect(state.live_refs == 0 && state.live_bytes == 0, "18: something is counted as live");
    world_.expect(world_.objects.empty(), "18: objects are left in the stores");
  }

  Dice setup_;
  World world_;
  SimProducer producer_;
  std::vector<SimConsumer> consumers_;
};

}  // namespace

HistoryResult run_history(std::uint64_t seed, std::int64_t chaos_steps) { return History(seed).run(chaos_steps); }

}  // namespace levada::fanout::sim
