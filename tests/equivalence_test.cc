// Real tiny models under random traffic: whatever shares the batch, is cached, is cut into chunks, evicted or retracted,
// every answer equals the one the same request gets alone on a cold engine with its prompt computed whole. Exact ids:
// float32 with batch-invariant kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "base/thread.h"
#include "device/device.h"
#include "engine/worker.h"
#include "model/model.h"
#include "model/tiny_drafts_test.h"
#include "sched/scheduler.h"
#include "support/instrumented.h"
#include "support/temporary_folder.h"

namespace levada {
namespace {

struct Answer {
  std::vector<core::Token> ids;
  std::string text;
  std::optional<core::Finish> finish;
  std::int32_t cached_tokens = 0;
};

// Folds deltas; lets a test wait for an answer's end and abort it after a number of tokens.
class Fold final : public core::OutputSink {
 public:
  void on_outputs(std::vector<core::OutputDelta> deltas) override {
    std::lock_guard lock(mutex_);
    for (core::OutputDelta& delta : deltas) {
      Answer& answer = answers_[delta.request];
      EXPECT_FALSE(answer.finish) << "a delta after the finish";
      answer.ids.insert(answer.ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      answer.text += delta.text;
      answer.cached_tokens = delta.cached_tokens;
      EXPECT_EQ(delta.completion_tokens, static_cast<std::int32_t>(answer.ids.size()));
      answer.finish = std::move(delta.finish);
    }
    changed_.notify_all();
  }
  void wait_for_tokens(core::RequestId id, std::size_t tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_[id].finish || answers_[id].ids.size() >= tokens; });
  }
  void wait_for_all(std::size_t requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return answers_.size() == requests &&
             std::all_of(answers_.begin(), answers_.end(), [](const auto& entry) { return entry.second.finish; });
    });
  }
  Answer of(core::RequestId id) {
    std::lock_guard lock(mutex_);
    return answers_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<core::RequestId, Answer> answers_;
};

struct Setting {
  std::string model = "llama";
  std::int32_t page_size = 4;
  std::int32_t pages = 4096;
  sched::Options sched;
  std::vector<std::filesystem::path> drafts;  // take turns while requests run
};

class Engine {
 public:
  Engine(const Setting& setting, device::Device& device, const text::Tokenizer& tokenizer) {
    model::ModelOptions options;
    options.dtype = "float32";
    options.page_size_tokens = setting.page_size;
    options.threads = 2;
    if (!setting.drafts.empty())
      options.draft_room = model::room_for(model::read_draft_config(setting.drafts[0] / "config.json").value());
    auto model = model::load_model(LEVADA_SOURCE_DIR "/tests/vectors/tiny/" + setting.model, options, device).value();
    auto pool = model->make_kv_pool(setting.pages).value();
    sched::Limits limits;
    limits.context_length_tokens = model->info().context_length_tokens;
    limits.total_pages = setting.pages;
    limits.vocab_size = model->info().vocab_size;
    limits.eos_token_ids = model->info().eos_token_ids;
    const core::KvLayout layout = model->kv_layout();
    worker_ = std::make_unique<engine::Worker>(std::move(model), std::move(pool));
    scheduler_ =
        std::make_unique<sched::Scheduler>(setting.sched, limits, layout, *worker_, fold, &tokenizer, clock_, metrics_);
    thread_ = Thread("sched", [this] { scheduler_->run(); });
    for (const std::filesystem::path& draft : setting.drafts) {
      versions_.push_back(core::DraftVersion{static_cast<std::uint32_t>(versions_.size() + 1)});
      worker_->offer_draft(versions_.back(), worker_->model().load_draft(draft).value());
      block_size_ = static_cast<std::int32_t>(worker_->model().load_draft(draft).value()->config().block_size);
    }
    swap_draft();
  }
  ~Engine() {
    scheduler_->stop();
    thread_.join();
  }
  sched::Scheduler& scheduler() { return *scheduler_; }

  // The next draft takes over; nothing happens without drafts.
  void swap_draft() {
    if (versions_.empty()) return;
    const core::DraftVersion version = versions_[turn_++ % versions_.size()];
    scheduler_->use_draft({version, "draft " + std::to_string(core::value(version)), block_size_}, [] {});
  }

  // With the cache flushed (which waits for plans still in flight) every page is free, and the books agree.
  void expect_clean() {
    const auto before = ask<sched::Snapshot>([&](auto answer) { scheduler_->inspect(answer); });
    retractions = before.retractions;
    drafts = before.speculation.drafts;
    accepted = before.speculation.accepted;
    evicted_tokens = before.evicted_tokens;
    const Status flushed = ask<Status>([&](auto answer) { scheduler_->flush_cache(answer); });
    EXPECT_TRUE(flushed.ok()) << flushed.to_string();
    const auto [snapshot, status] = ask<std::pair<sched::Snapshot, Status>>([&](auto answer) {
      scheduler_->audit([answer](const sched::Snapshot& now, Status verdict) { answer({now, verdict}); });
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(snapshot.free_pages, snapshot.total_pages);
  }

  Fold fold;
  std::uint64_t retractions = 0, evicted_tokens = 0, drafts = 0, accepted = 0;

 private:
  // Posts a question to the scheduler and waits for its answer.
  template <class Value, class Post>
  static Value ask(Post post) {
    std::promise<Value> promise;
    post([&promise](Value value) { promise.set_value(std::move(value)); });
    return promise.get_future().get();
  }

  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<engine::Worker> worker_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::vector<core::DraftVersion> versions_;
  std::int32_t block_size_ = 0;
  std::size_t turn_ = 0;
  Thread thread_;
};

struct Traffic {
  std::vector<core::Request> requests;
  std::map<std::size_t, std::size_t> abort_after_tokens;  // index -> tokens seen
};

// A third of the prompts repeat another one's beginning; a third of the requests sample; some have stop ids or strings.
Traffic random_traffic(std::uint32_t seed, std::size_t count, std::int32_t vocab) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
  Traffic traffic;
  for (std::size_t i = 0; i < count; ++i) {
    core::Request request;
    request.id = core::RequestId{i + 1};
    if (i > 0 && below(3) > 0) {
      const auto& other = traffic.requests[static_cast<std::size_t>(below(static_cast<std::uint32_t>(i)))].prompt;
      request.prompt.assign(other.begin(), other.begin() + 1 + below(static_cast<std::uint32_t>(other.size())));
    }
    for (std::int32_t extra = 1 + below(40); extra > 0; --extra)
      request.prompt.push_back(3 + below(static_cast<std::uint32_t>(vocab - 3)));
    request.sampling.max_new_tokens = 1 + below(24);
    request.sampling.temperature = below(3) == 0 ? 0.8f : 0.0f;
    request.sampling.seed = random();
    request.sampling.ignore_eos = below(2) == 0;
    if (below(4) == 0) request.sampling.stop_token_ids = {3 + below(static_cast<std::uint32_t>(vocab - 3))};
    if (below(4) == 0) request.sampling.stop = {"e"};
    if (below(4) == 0) request.sampling.frequency_penalty = 0.5f;
    if (below(5) == 0) traffic.abort_after_tokens[i] = static_cast<std::size_t>(below(4));
    traffic.requests.push_back(std::move(request));
  }
  return traffic;
}

class Equivalence : public testing::TestWithParam<std::string> {
 protected:
  Equivalence()
      : device_(device::open_device(device::DeviceKind::kCpu).value()),
        tokenizer_(text::Tokenizer::from_json(LEVADA_SOURCE_DIR "/tests/vectors/tiny/" + GetParam() + "/tokenizer.json")
                       .value()) {}

  // The answer of each request alone, cold, with its prompt in one piece.
  std::vector<Answer> solo(const Traffic& traffic) {
    Setting setting;
    setting.model = GetParam();
    setting.sched.disable_radix_cache = true;
    setting.sched.disable_overlap_schedule = true;
    setting.sched.chunked_prefill_size = -1;
    setting.sched.speculative_algorithm = "none";
    Engine engine(setting, *device_, *tokenizer_);
    std::vector<Answer> answers;
    for (const core::Request& request : traffic.requests) {
      EXPECT_TRUE(engine.scheduler().submit(request).ok());
      engine.fold.wait_for_tokens(request.id, SIZE_MAX);
      answers.push_back(engine.fold.of(request.id));
    }
    return answers;
  }

  struct Seen {
    std::uint64_t retractions = 0, evicted_tokens = 0, drafts = 0, accepted = 0;
  };

  void expect_equal_to_solo(const Setting& setting, std::uint32_t seed, std::size_t requests, Seen& seen) {
    const Traffic traffic = random_traffic(seed, requests, tokenizer_->vocab_size());
    const std::vector<Answer> expected = solo(traffic);
    Engine engine(setting, *device_, *tokenizer_);
    for (const core::Request& request : traffic.requests) EXPECT_TRUE(engine.scheduler().submit(request).ok());
    for (const auto& [index, tokens] : traffic.abort_after_tokens) {
      engine.swap_draft();
      const core::RequestId id = traffic.requests[index].id;
      engine.fold.wait_for_tokens(id, tokens);
      engine.scheduler().abort(id, Status(StatusCode::kAborted, "test"));
    }
    engine.fold.wait_for_all(traffic.requests.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", request " + std::to_string(i));
      expect_same(expected[i], engine.fold.of(traffic.requests[i].id));
    }
    engine.expect_clean();
    seen.retractions += engine.retractions;
    seen.evicted_tokens += engine.evicted_tokens;
    seen.drafts += engine.drafts;
    seen.accepted += engine.accepted;
  }

  void expect_speculation_changes_nothing(const std::vector<std::filesystem::path>& drafts,
                                          std::initializer_list<const char*> algorithms, std::uint32_t seed,
                                          std::uint64_t accepted);

  static void expect_same(const Answer& expected, const Answer& got) {
    ASSERT_NE(got.finish->reason, core::FinishReason::kError) << got.finish->status.to_string();
    if (got.finish->reason == core::FinishReason::kAbort) {  // a beginning of the same answer
      ASSERT_LE(got.ids.size(), expected.ids.size());
      EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), expected.ids.begin()));
      return;
    }
    EXPECT_EQ(got.ids, expected.ids);
    EXPECT_EQ(got.text, expected.text);
    EXPECT_EQ(got.finish->reason, expected.finish->reason);
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

TEST_P(Equivalence, BatchedChunkedWarmAnswersEqualColdSoloOnes) {
  Seen seen;
  std::uint32_t seed = 1;
  for (const std::int32_t page_size : {1, 4, 16}) {
    for (const std::int64_t chunk : {16, 48, -1}) {
      for (const bool overlap : {true, false}) {
        Setting setting;
        setting.model = GetParam();
        setting.page_size = page_size;
        setting.sched.chunked_prefill_size = chunk;
        setting.sched.disable_overlap_schedule = !overlap;
        setting.sched.max_running_requests = 8;
        expect_equal_to_solo(setting, seed++, test::kInstrumented ? 6 : 24, seen);
      }
    }
  }
}

TEST_P(Equivalence, ATightPoolEvictsAndRetractsWithoutChangingAToken) {
  Seen seen;
  // Whether somebody is retracted depends on the timing of two threads: go on until it was seen.
  const std::uint32_t end = test::kInstrumented ? 102 : 110;
  for (std::uint32_t seed = 100; seed < end || (seen.retractions == 0 && seed < 300); ++seed) {
    Setting setting;
    setting.model = GetParam();
    setting.page_size = 4;
    setting.pages = 90;
    setting.sched.chunked_prefill_size = 32;
    setting.sched.schedule_conservativeness = 0.05;  // admits more than fits, so that somebody is retracted
    setting.sched.disable_overlap_schedule = seed % 2 == 0;
    expect_equal_to_solo(setting, seed, 24, seen);
  }
  EXPECT_GT(seen.retractions, 0u) << "the pool was not tight enough to prove anything";
  EXPECT_GT(seen.evicted_tokens, 0u) << "the pool was not tight enough to prove anything";
}

// Speculation changes nothing: two drafts that take turns, n-grams, blocks of every size, pools that are tight.
TEST_P(Equivalence, SpeculativeAnswersEqualPlainOnes) {
  const test::TemporaryFolder one, two;
  model::write_draft(GetParam(), 1, one.path());
  model::write_draft(GetParam(), 2, two.path());
  expect_speculation_changes_nothing({one.path(), two.path()}, {"auto", "DFLASH", "NGRAM"}, 500, 11);
}

// The same of EAGLE-3 drafts, whose planes hold each token with the next one: prefixes are keyed by bigrams. A draft drawn at
// random is right once in hundreds; chains that are right have their tests in model.
TEST_P(Equivalence, SpeculativeAnswersOfEagleDraftsEqualPlainOnes) {
  const test::TemporaryFolder one, two;
  model::write_eagle(GetParam(), 1, one.path());
  model::write_eagle(GetParam(), 2, two.path());
  expect_speculation_changes_nothing({one.path(), two.path()}, {"auto", "EAGLE3"}, 900, 1);
}

void Equivalence::expect_speculation_changes_nothing(const std::vector<std::filesystem::path>& drafts,
                                                     std::initializer_list<const char*> algorithms, std::uint32_t seed,
                                                     std::uint64_t accepted) {
  Seen seen;
  const auto every_setting = [&] {
    for (const char* algorithm : algorithms) {
      for (const bool adaptive : {true, false}) {
        for (const std::int32_t pages : {4096, 90}) {
          Setting setting;
          setting.model = GetParam();
          setting.pages = pages;
          setting.drafts = drafts;
          setting.sched.speculative_algorithm = algorithm;
          setting.sched.speculative_adaptive = adaptive;
          setting.sched.chunked_prefill_size = 32;
          setting.sched.max_running_requests = 8;
          expect_equal_to_solo(setting, seed++, test::kInstrumented ? 6 : 24, seen);
        }
      }
    }
  };
  // How often these untrained drafts guess right depends on the timing of two threads: go on until it was seen.
  for (int round = 0; round == 0 || (seen.accepted < accepted && round < 60); ++round) every_setting();
  EXPECT_GT(seen.drafts, 100u);
  EXPECT_GE(seen.accepted, accepted);
}

INSTANTIATE_TEST_SUITE_P(TinyModels, Equivalence, testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levada
