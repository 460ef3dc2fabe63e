// What: TestRun, a whole fan-out run in one thread: the real registry machine, scripted servers with real arenas, capture
// workers, the remover and consumers' feeds, each moved one step at a time by the test.
// Owner: tests.
// Thread: the test's.
// Invariant: time moves only where the test or a pause moves it; the audit runs after every registry call.
// Consumers "train" by writing down what they were given.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "consumer/feed.h"
#include "consumer/test_registry.h"
#include "producer/capture_worker.h"
#include "producer/plan.h"
#include "producer/removal_worker.h"
#include "producer/scripted_server.h"
#include "store/local_store.h"

namespace levada::producer {

// An arena of this process, as a client in another would see it: gone when the server is.
class ArenaClient final : public store::ObjectStore {
 public:
  explicit ArenaClient(ScriptedServer& server) : server_(server) {}
  store::Capabilities capabilities() const override { return {true, true, true, true, false, true}; }
  std::uint64_t incarnation() const override { return server_.arena() == nullptr ? 0 : server_.arena()->incarnation(); }
  Result<std::optional<store::ObjectInfo>> is_exist(std::string_view key) override {
    return with([&](store::LocalStore& store) { return store.is_exist(key); });
  }
  Status put_from(std::string_view, std::span<const std::byte>, const store::PutOptions&) override {
    return internal_error("nobody here puts");
  }
  Result<store::ObjectInfo> get_into(std::string_view key, std::span<std::byte> to, std::uint64_t life) override {
    return with([&](store::LocalStore& store) { return store.get_into(key, to, life); });
  }
  Result<store::RemoveOutcome> remove(std::string_view key) override {
    return with([&](store::LocalStore& store) { return store.remove(key); });
  }
  Result<store::RemovedCount> remove_prefix(std::string_view prefix) override {
    return with([&](store::LocalStore& store) { return store.remove_prefix(prefix); });
  }
  Result<store::Lease> lease(std::string_view, std::int64_t, std::uint64_t) override {
    return internal_error("nobody here leases");
  }
  // Its own copy: what a consumer holds outlives an arena that dies in the same process.
  Result<store::ObjectView> view(std::string_view key, std::uint64_t life) override {
    return store::ObjectStore::view(key, life);
  }

 private:
  template <class F>
  auto with(F&& ask) -> decltype(ask(std::declval<store::LocalStore&>())) {
    if (server_.arena() == nullptr) return unavailable("connection refused");
    store::LocalStore local(*server_.arena());
    return ask(local);
  }
  ScriptedServer& server_;
};

inline CaptureContract small_contract() { return {"store", {1, 2}, 4, DType::kBF16}; }

inline std::vector<PreparedSample> small_samples(std::int64_t count) {
  std::vector<PreparedSample> samples;
  for (std::int64_t p = 0; p < count; ++p) {
    PreparedSample sample;
    for (std::int64_t i = 0; i < p % 3 + 2; ++i) {
      sample.input_ids.push_back(static_cast<std::int32_t>(p * 10 + i));
      sample.loss_mask.push_back(1);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

struct TestRunShape {
  std::int64_t samples = 8;
  std::int64_t servers = 1;
  std::vector<fanout::ConsumerSpec> consumers = {{"a", 2, 0, 5, 4, 4}};
  std::int64_t max_live_refs = 16;
  std::int64_t max_capture_retries = 4;
  std::int64_t skip_failed = 0;
};

class TestRun {
 public:
  explicit TestRun(const TestRunShape& shape)
      : shape_(shape), samples_(small_samples(shape.samples)), plan_(*make_plan(samples_, {"run"})) {
    registry_ = std::make_unique<consumer::TestRegistry>(config(), clock);
    for (std::int64_t s = 0; s < shape.servers; ++s) {
      const std::string url = "http://server-" + std::to_string(s) + ":1";
      servers.push_back(std::make_unique<ScriptedServer>(url, contract, clock));
      watches.push_back(
          std::make_unique<ServerWatch>(url, contract, ServerWatch::Options{3, 120'000'000, StoreChoice::kAuto}));
      borrowed_.push_back(watches.back().get());
      CaptureWorker::Options options;
      options.name = "worker-" + std::to_string(s);
      options.batch = 3;
      options.skips_failed = shape.skip_failed > 0;
      const CaptureWorker::Surroundings around{*registry_, contract, plan_.samples, pause,
                                               [this] { return std::to_string(++keys_); }};
      workers.push_back(std::make_unique<CaptureWorker>(options, around, *watches.back(),
                                                        std::make_unique<ScriptedConnection>(*servers.back())));
      LEVADA_CHECK(watch(s).ok(), "a server that is up describes itself");
    }
    remover =
        std::make_unique<RemovalWorker>(RemovalWorker::Options{"store"}, *registry_, borrowed_, open_store(), pause);
    for (const auto& spec : shape.consumers) {
      consumers.push_back(std::make_unique<Trainer>(*this, spec));
      consumers.back()->start();
    }
  }

  consumer::TestRegistry& registry() { return *registry_; }
  const Plan& plan() const { return plan_; }

  // The supervisor's look at server s.
  Status watch(std::int64_t s) {
    ScriptedConnection connection(*servers[static_cast<std::size_t>(s)]);
    return watches[static_cast<std::size_t>(s)]->describe(connection, *registry_, 1, clock.now_us());
  }
  OpenStore open_store() {
    return [this](const std::string& url) -> Result<std::unique_ptr<store::ObjectStore>> {
      for (auto& server : servers) {
        if (server->store_url() != url) continue;
        if (server->arena() == nullptr) return unavailable("connection refused");
        return std::unique_ptr<store::ObjectStore>(std::make_unique<ArenaClient>(*server));
      }
      return invalid_argument("no such store");
    };
  }

  // A consumer's process: dies and starts again, remembering only its checkpoint.
  struct Trainer {
    Trainer(TestRun& in_run, fanout::ConsumerSpec its_spec) : run(in_run), spec(std::move(its_spec)) {}

    void start() {
      feed.reset();
      pause.start_again();
      trained.resize(static_cast<std::size_t>(saved_step * spec.quantum));
      step = saved_step;
      fanout::RegisterRequest who{"run",
                                  spec.consumer_id,
                                  "contract",
                                  run.plan().source_digest,
                                  "recipe",
                                  spec.lookbehind,
                                  spec.lookahead,
                                  spec.prefetch_depth,
                                  spec.max_outstanding,
                                  spec.quantum,
                                  "process " + std::to_string(++processes),
                                  true};
      session =
          std::make_unique<consumer::Session>(who, consumer::Session::Options{}, run.registry(), run.clock, pause);
      LEVADA_CHECK(session->open().ok(), "the consumer registers");
      reader = std::make_unique<consumer::SampleReader>(consumer::SampleReader::Options{}, run.card_, run.open_store(),
                                                        pause);
      feed = std::make_unique<consumer::Feed>(consumer::Feed::Options{.idle_us = 1}, spec, *session, *reader, run.clock,
                                              pause);
      const Status begun = feed->begin(step, "/step" + std::to_string(step));
      LEVADA_CHECK(begun.ok(), begun.to_string().c_str());
    }
    // One fetch; false once nothing is left.
    bool fetch() {
      const auto fetched = feed->fetch_step(0);
      EXPECT_NE(fetched, consumer::Feed::Fetch::kFailed) << feed->next(spec.quantum).status().to_string();
      return fetched == consumer::Feed::Fetch::kFetched;
    }
    // A step if its samples are here.
    bool train() {
      auto samples = feed->next(spec.quantum);
      if (!samples.ok()) return false;  // not here yet: the feed gave up after a microsecond
      if (samples->empty()) return false;
      for (const consumer::ReadSample* sample : *samples) check_and_note(*sample);
      step += 1;
      if (step % save_every == 0) {
        saved_step = step;
        EXPECT_TRUE(feed->checkpointed(step, "/step" + std::to_string(step)).ok());
      }
      const Status stepped = feed->stepped(step);
      EXPECT_TRUE(stepped.ok()) << stepped.to_string();
      return true;
    }
    void check_and_note(const consumer::ReadSample& sample) {
      if (sample.sample_id == "skipped") {
        EXPECT_EQ(sample.loss_mask[0] + sample.loss_mask[1], 0) << "nothing to learn from";
        skipped.push_back(sample.position);
        return;
      }
      const PreparedSample& wanted = *run.plan().samples[static_cast<std::size_t>(sample.position)];
      EXPECT_EQ(std::vector<std::int32_t>(sample.input_ids.begin(), sample.input_ids.end()), wanted.input_ids);
      EXPECT_EQ(sample.hidden_states[0], static_cast<std::uint16_t>(wanted.input_ids[0] * 31 % 0x7000));
      trained.push_back(sample.position);
    }
    bool is_at_end() const { return feed->cursor() >= feed->usable_end(); }
    void complete() {
      is_complete = true;
      const auto done = feed->complete(false);
      EXPECT_TRUE(done.ok()) << done.status().to_string();
    }

    TestRun& run;
    const fanout::ConsumerSpec spec;
    consumer::ClockPause pause{run.clock};
    std::unique_ptr<consumer::Session> session;
    std::unique_ptr<consumer::SampleReader> reader;
    std::unique_ptr<consumer::Feed> feed;
    std::vector<std::int64_t> trained;  // positions, as its weights have seen them
    std::vector<std::int64_t> skipped;
    std::int64_t step = 0, saved_step = 0, save_every = 2, processes = 0;
    bool is_complete = false;
  };

  // Everything moves until nothing does, with time passing in between; at most `turns` rounds.
  bool run_to_end(int turns = 400) {
    for (int turn = 0; turn < turns; ++turn) {
      for (std::size_t s = 0; s < servers.size(); ++s) {
        (void)watch(static_cast<std::int64_t>(s));
        const auto step = workers[s]->step();
        EXPECT_TRUE(step.ok()) << step.status().to_string();
      }
      for (auto& trainer : consumers) {
        if (trainer->is_complete) continue;
        while (trainer->fetch()) {
        }
        while (trainer->train()) {
        }
        if (trainer->is_at_end()) trainer->complete();
      }
      const auto removed = remover->step();
      EXPECT_TRUE(removed.ok()) << removed.status().to_string();
      if (removed.ok() && *removed == RemovalWorker::Step::kDrained) return true;
      clock.advance_us(1'000'000);
    }
    return false;
  }

  // What must hold after every run that ended well (I12, I18).
  void expect_clean_end() {
    const auto snapshot = registry_->snapshot();
    EXPECT_EQ(snapshot.status, fanout::RunStatus::kCompleted) << snapshot.fail_reason;
    EXPECT_EQ(snapshot.entries.at("absent"), shape_.samples);
    EXPECT_EQ(snapshot.counters.at("live_refs"), 0);
    EXPECT_EQ(snapshot.counters.at("live_bytes"), 0);
    EXPECT_LE(snapshot.counters.at("peak_live_refs"), shape_.max_live_refs);
    for (auto& server : servers) {
      if (server->arena() == nullptr) continue;
      EXPECT_EQ(server->arena()->stats().used_bytes, 0u) << server->url();
    }
    for (auto& trainer : consumers) {
      std::vector<std::int64_t> all;
      for (std::int64_t p = 0; p < trainer->feed->usable_end(); ++p) all.push_back(p);
      EXPECT_EQ(trainer->trained, all) << trainer->spec.consumer_id;
    }
  }

  ManualClock clock;
  consumer::ClockPause pause{clock};
  const CaptureContract contract = small_contract();
  std::vector<std::unique_ptr<ScriptedServer>> servers;
  std::vector<std::unique_ptr<ServerWatch>> watches;
  std::vector<std::unique_ptr<CaptureWorker>> workers;
  std::unique_ptr<RemovalWorker> remover;
  std::vector<std::unique_ptr<Trainer>> consumers;

 private:
  fanout::RunConfig config() {
    fanout::RunConfig config;
    config.run_id = "run";
    config.store_id = contract.store_id;
    config.contract_digest = "contract";
    config.source_digest = plan_.source_digest;
    config.sources = plan_.sources;
    config.consumers = shape_.consumers;
    config.bytes_per_token = contract.bytes_per_token();
    config.feature_names = {kHiddenStates, kInputIds, kLossMask};
    config.max_live_refs = shape_.max_live_refs;
    config.max_live_bytes = shape_.max_live_refs * 4 * config.bytes_per_token;
    config.max_capture_retries = shape_.max_capture_retries;
    config.skip_failed = shape_.skip_failed;
    card_ = {"run",
             "store",
             "contract",
             plan_.source_digest,
             "",
             config.total(),
             config.total(),
             contract.aux_layer_ids,
             contract.hidden_size,
             contract.dtype,
             {}};
    for (const PreparedSample* sample : plan_.samples) {
      const std::vector<std::int64_t> wide(sample->input_ids.begin(), sample->input_ids.end());
      card_.input_hashes.push_back(hash64(std::as_bytes(std::span(wide))));
    }
    return config;
  }

  const TestRunShape shape_;
  const std::vector<PreparedSample> samples_;
  const Plan plan_;
  consumer::RunCard card_;
  std::unique_ptr<consumer::TestRegistry> registry_;
  std::vector<ServerWatch*> borrowed_;
  std::int64_t keys_ = 0;
};

}  // namespace levada::producer
