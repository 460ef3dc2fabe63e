// Training on samples of stores of different kinds, as a trainer meets them: an arena on a device that is mapped (the CPU's
// twin of nvlink), one in shared host memory, one behind TCP. The spec's T10, rows 2 and 19 of its fault table, mixed runs.
#include <gtest/gtest.h>

#include <array>

#include "consumer/test_registry.h"
#include "store/test_store.h"
#include "train/registry_source.h"
#include "train/trainer_support_test.h"
#include "train/training_run.h"

namespace levada::train {
namespace {

using namespace test;

constexpr std::int64_t kTotal = 12, kQuantum = 4;

// The three servers of a run.
struct Stores {
  enum Kind : std::size_t { kNvlink, kShm, kTcp };
  static constexpr std::array kAll = {kNvlink, kShm, kTcp};
  std::unique_ptr<device::Device> device = device::make_cpu_device();
  store::ServedArena on_device{1 << 20, {}, device.get()}, shared{1 << 20}, remote{1 << 20};

  store::ServedArena& of(Kind kind) { return kind == kNvlink ? on_device : kind == kShm ? shared : remote; }
  std::string url(Kind kind) { return kind == kTcp ? of(kind).server->tcp_url() : of(kind).server->shm_url(); }
};

// A run of kTotal samples, whose captures lie where `place` says, and its one registry.
class MixedRun {
 public:
  using Place = std::function<Stores::Kind(std::int64_t position, std::int64_t generation)>;
  explicit MixedRun(Place place, std::vector<std::string> consumers = {"a"}) : place_(std::move(place)) {
    card_ = {"run", "store", "contract", "plan", "http://127.0.0.1:1", kTotal, kTotal, {1, 3, 5}, 32, DType::kBF16, {}};
    for (const OwnedSample& sample : samples_.owned)
      card_.input_hashes.push_back(hash64(std::as_bytes(std::span(sample.ids))));
    for (const std::string& id : consumers) specs_.push_back({id, kQuantum, 0, kTotal, kTotal, kTotal});
    fanout::RunConfig config;
    config.run_id = card_.run_id;
    config.store_id = card_.store_id;
    config.contract_digest = card_.contract_digest;
    config.source_digest = card_.source_digest;
    for (std::int64_t p = 0; p < kTotal; ++p)
      config.sources.push_back({"run:p" + std::to_string(p),
                                static_cast<std::int64_t>(samples_.owned[static_cast<std::size_t>(p)].ids.size())});
    config.consumers = specs_;
    config.bytes_per_token = 3 * 32 * 2 + 16;
    config.max_live_refs = 2 * kTotal;
    config.max_live_bytes = 1 << 22;
    config.feature_names = {"hidden_states", "input_ids", "loss_mask"};
    registry = std::make_unique<consumer::TestRegistry>(config, clock);
  }

  // What a producer does: everything that is asked for is removed, or captured into the store of its place.
  void capture() {
    remove();
    for (bool more = true; more;) {
      const auto claim = registry->call(fanout::ClaimRequest{"w", "server", next_claim_++, 4, 0});
      ASSERT_TRUE(claim.ok());
      for (const fanout::CaptureOrder& order : claim->requests) {
        const auto ref = std::make_shared<const core::SampleRef>(put(order.source_index, order.generation));
        const fanout::MarkCommittingRequest mark{order.source_index, order.generation, order.nonce, ref,
                                                 static_cast<std::int64_t>(ref->bytes())};
        ASSERT_TRUE(registry->call(mark).ok());
        ASSERT_TRUE(
            registry->call(fanout::CompleteCaptureRequest{order.source_index, order.generation, order.nonce}).ok());
      }
      more = !claim->requests.empty();
    }
  }

  const consumer::RunCard& card() const { return card_; }
  const fanout::ConsumerSpec& spec(std::size_t i) const { return specs_[i]; }

  ManualClock clock;  // of the registry and its leases
  SystemClock system_clock;
  consumer::ClockPause pause{clock};
  Stores stores;
  std::unique_ptr<consumer::TestRegistry> registry;

 private:
  void remove() {
    const auto reply = registry->call(fanout::RemovalsRequest{64, 0});
    ASSERT_TRUE(reply.ok());
    for (const fanout::Removal& removal : reply->removals) {
      for (const std::string& name : removal.names) {
        for (const Stores::Kind kind : Stores::kAll) {
          if (stores.of(kind).arena == nullptr) continue;
          const auto generation = static_cast<std::uint32_t>(removal.generation);
          const std::string key = core::object_key(card_.store_id, removal.source_sample_id, generation, name);
          EXPECT_NE(stores.of(kind).arena->remove(key), store::RemoveOutcome::kStillRead) << key;
        }
      }
      ASSERT_TRUE(registry->call(fanout::FinishEvictionRequest{removal.source_index, removal.generation, {}}).ok());
    }
  }
  core::SampleRef put(std::int64_t p, std::int64_t generation) {
    const OwnedSample& sample = samples_.owned[static_cast<std::size_t>(p)];
    const Stores::Kind kind = place_(p, generation);
    store::Arena& arena = *stores.of(kind).arena;
    core::SampleRef ref;
    ref.store_id = card_.store_id;
    ref.sample_id = "run:p" + std::to_string(p);
    ref.generation = static_cast<std::uint32_t>(generation);
    ref.store_url = stores.url(kind);
    ref.incarnation = arena.incarnation();
    const auto tokens = static_cast<std::int64_t>(sample.ids.size());
    ref.num_tokens = static_cast<std::int32_t>(tokens);
    ref.aux_layer_ids = card_.aux_layer_ids;
    const auto add = [&](const char* name, DType dtype, std::vector<std::int64_t> shape,
                         std::span<const std::byte> bytes) {
      const Status stored = arena.put_from(core::object_key(ref.store_id, ref.sample_id, ref.generation, name), bytes);
      LEVADA_CHECK(stored.ok(), stored.to_string().c_str());
      ref.tensors.push_back({name, dtype, std::move(shape), hash64(bytes)});
    };
    add("hidden_states", DType::kBF16, {1, tokens, 3 * 32}, std::as_bytes(std::span(sample.features)));
    add("input_ids", DType::kI64, {1, tokens}, std::as_bytes(std::span(sample.ids)));
    add("loss_mask", DType::kI64, {1, tokens}, std::as_bytes(std::span(sample.mask)));
    return ref;
  }

  const Samples samples_{small_config(), kTotal};
  const Place place_;
  consumer::RunCard card_;
  std::vector<fanout::ConsumerSpec> specs_;
  std::int64_t next_claim_ = 1;
};

// One trainer of a run, stepped by the test: whatever is missing is captured and fetched when it asks.
class Trainee final : public SampleSource {
 public:
  explicit Trainee(MixedRun& run, std::size_t index = 0)
      : run_(run),
        session_({run.card().run_id, run.spec(index).consumer_id, run.card().contract_digest, run.card().source_digest,
                  "recipe", 0, kTotal, kTotal, kTotal, kQuantum, "nonce", false},
                 {}, *run.registry, run.clock, run.pause),
        reader_(
            {.device = run.stores.device.get()}, run.card(),
            [&run](const std::string& url) {
              return store::open_store(url, store::kToken, {.device = run.stores.device.get()}, run.system_clock);
            },
            run.pause),
        feed_({.idle_us = 1}, run.spec(index), session_, reader_, run.clock, run.pause) {
    Options options = small_options();
    options.torch_dtype = "bfloat16";
    options.total_steps = kTotal / kQuantum;
    options.save_interval = 0;
    options.output_dir = folder_.path();
    model::DraftConfig config = small_config();
    config.dtype = options.torch_dtype;
    trainer_ = make_trainer(options, config);
    EXPECT_TRUE(session_.open().ok());
    EXPECT_TRUE(feed_.begin(0, "").ok());
  }

  Result<std::vector<Sample>> next(std::int64_t count) override {
    for (int round = 0; round < 50; ++round) {
      run_.capture();
      const auto fetched = feed_.fetch_step(0);
      if (fetched != consumer::Feed::Fetch::kFetched && fetched != consumer::Feed::Fetch::kWaiting) break;
    }
    return source_.next(count);
  }
  Result<bool> confirm() override {
    if (before_confirm) std::exchange(before_confirm, nullptr)();
    return source_.confirm();
  }
  Status checkpointed(std::int64_t step, const std::filesystem::path& folder) override {
    return source_.checkpointed(step, folder);
  }
  Status stepped(std::int64_t step) override { return source_.stepped(step); }

  // To the end; returns the loss of each step.
  std::vector<double> train() {
    std::vector<double> losses;
    RunHooks hooks;
    hooks.on_step = [&](const StepReport& report, double, double) { losses.push_back(report.metrics.loss()); };
    const auto report = run_training(*trainer_, *this, run_.clock, hooks);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return losses;
  }
  std::string weights() { return weights_of(*trainer_); }
  consumer::Feed::Counts counts() const { return feed_.counts(); }

  std::function<void()> before_confirm;  // once

 private:
  MixedRun& run_;
  TemporaryFolder folder_;
  consumer::Session session_;
  consumer::SampleReader reader_;
  consumer::Feed feed_;
  RegistrySource source_{feed_};
  std::unique_ptr<DflashTrainer> trainer_;
};

struct TrainedOver {
  std::vector<double> losses;
  std::string weights;
  bool operator==(const TrainedOver&) const = default;
};

TrainedOver train_over(Stores::Kind kind) {
  MixedRun run([kind](std::int64_t, std::int64_t) { return kind; });
  Trainee trainee(run);
  TrainedOver trained{trainee.train(), {}};
  trained.weights = trainee.weights();
  EXPECT_EQ(trained.losses.size(), 3u);
  EXPECT_EQ(trainee.counts().in_place, kind == Stores::kNvlink ? kTotal : 0);
  EXPECT_EQ(trainee.counts().gone_back, 0);
  return trained;
}

TEST(Transports, T10TheLossOfEveryStepAndTheWeightsAreTheSameBitsOverNvlinkShmAndTcp) {
  const TrainedOver nvlink = train_over(Stores::kNvlink);
  EXPECT_GT(nvlink.losses.front(), 0);
  EXPECT_EQ(train_over(Stores::kTcp), nvlink);
  EXPECT_EQ(train_over(Stores::kShm), nvlink);
}

TEST(Transports, OneRunMixesThemAndEachConsumerReadsAll) {
  MixedRun run([](std::int64_t p, std::int64_t) { return Stores::kAll[static_cast<std::size_t>(p % 3)]; }, {"a", "b"});
  Trainee first(run, 0), second(run, 1);
  const TrainedOver alone = train_over(Stores::kTcp);
  EXPECT_EQ((TrainedOver{first.train(), first.weights()}), alone);
  EXPECT_EQ((TrainedOver{second.train(), second.weights()}), alone);
  EXPECT_EQ(first.counts().in_place, kTotal / 3);
  EXPECT_EQ(first.counts().acquired, kTotal) << "nothing was read twice";
}

// Its samples are captured anew, into those that are left.
TEST(Transports, F02AServerThatDiesCostsARecaptureAndNoSample) {
  const TrainedOver unharmed = train_over(Stores::kTcp);
  for (const Stores::Kind dead : Stores::kAll) {
    bool died = false;
    MixedRun run([&](std::int64_t p, std::int64_t) {
      const auto wanted = Stores::kAll[static_cast<std::size_t>(p % 3)];
      return died && wanted == dead ? Stores::kAll[(dead + 1) % 3] : wanted;
    });
    Trainee trainee(run);
    trainee.before_confirm = [&] {  // in the middle of the first step
      died = true;
      run.stores.of(dead).stop();
    };
    EXPECT_EQ((TrainedOver{trainee.train(), trainee.weights()}), unharmed) << dead;
  }
}

TEST(Transports, BytesThatChangeInTheArenaUnderAStepAreNeverLearntFrom) {
  const TrainedOver unharmed = train_over(Stores::kNvlink);
  MixedRun run([](std::int64_t, std::int64_t) { return Stores::kNvlink; });
  Trainee trainee(run);
  trainee.before_confirm = [&] {
    const auto view = run.stores.on_device.arena->view("store/run:p2/g1/hidden_states");
    ASSERT_TRUE(view.ok());
    auto* const byte = const_cast<std::byte*>(view->bytes().data());
    *byte ^= std::byte{1};
  };
  EXPECT_EQ((TrainedOver{trainee.train(), trainee.weights()}), unharmed);
  EXPECT_EQ(trainee.counts().reported_lost, 0) << "the step found it, not a read";
  EXPECT_GT(trainee.counts().gone_back, 0);
}

TEST(Transports, F19ALeaseThatEndsUnderAStepGivesItUpAndTheSamplesAreReadAgain) {
  const TrainedOver unharmed = train_over(Stores::kNvlink);
  MixedRun run([](std::int64_t, std::int64_t) { return Stores::kNvlink; });
  Trainee trainee(run);
  trainee.before_confirm = [&] { run.clock.advance_us(26'000'000); };
  EXPECT_EQ((TrainedOver{trainee.train(), trainee.weights()}), unharmed);
  EXPECT_GT(trainee.counts().gone_back, 0);
}

}  // namespace
}  // namespace levada::train
