// Captured requests in the brain: every row of theirs is computed, and they leave the prefix cache alone unless asked.
#include <gtest/gtest.h>

#include <map>

#include "sched/brain.h"
#include "sched/sim/scripted_model.h"

namespace levada::sched {
namespace {

using core::Token;

constexpr std::int32_t kVocab = 320;
constexpr core::CaptureId kCapture{7};

std::vector<Token> prompt(std::int32_t tokens) {
  std::vector<Token> ids;
  for (std::int32_t i = 0; i < tokens; ++i) ids.push_back((5 + 7 * i) % kVocab);
  return ids;
}

// A brain and a scripted model in lockstep; keeps the token ranges that plans asked to capture.
class CaptureTest : public testing::Test {
 protected:
  explicit CaptureTest(std::int32_t total_pages = 64)
      : limits{1000, total_pages, kVocab, {}},
        model(total_pages, 4, kVocab),
        brain(options(), limits, layout, nullptr, clock, metrics) {
    model.set_result_sink([this](core::StepResult result) { brain.apply(result); });
  }
  static Options options() {
    Options options;
    options.chunked_prefill_size = 16;
    options.schedule_conservativeness = 0.01;  // admits both of two that don't fit together
    return options;
  }
  void submit(std::uint64_t id, std::vector<Token> ids, std::optional<core::CaptureRequest> capture,
              std::int32_t max_new = 1) {
    core::Request request;
    request.id = core::RequestId{id};
    request.prompt = std::move(ids);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new;
    request.capture = std::move(capture);
    brain.submit(std::move(request));
  }
  void run() {
    for (int turn = 0; turn < 2000 && !brain.idle(); ++turn) {
      if (auto plan = brain.next_plan()) {
        note(*plan);
        model.submit(std::move(plan));
      }
      model.compute_one();
      for (core::OutputDelta& delta : brain.take_deltas()) cached[core::value(delta.request)] = delta.cached_tokens;
    }
    ASSERT_TRUE(brain.idle());
    EXPECT_TRUE(brain.audit().ok()) << brain.audit().to_string();
  }
  void note(const core::StepPlan& plan) {
    for (const core::PlanCapture& capture : plan.captures) {
      EXPECT_EQ(capture.id, kCapture);
      layers.assign(plan.capture_layers.begin() + capture.layers_first,
                    plan.capture_layers.begin() + capture.layers_first + capture.layers_count);
      const core::TokenRange range = plan.slices[static_cast<std::size_t>(capture.slice)].range;
      if (range.first == 0) rows = 0;  // a retracted request starts again
      EXPECT_EQ(range.first, rows) << "ranges come without gaps";
      rows = range.end();
    }
  }

  core::KvLayout layout{4, {{"k", "target", DType::kF32, 1, {0}}}};
  Limits limits;
  ManualClock clock;
  Metrics metrics;
  sim::ScriptedModel model;
  Brain brain;
  std::map<std::uint64_t, std::int32_t> cached;
  std::vector<std::int32_t> layers;
  std::int32_t rows = 0;
};

TEST_F(CaptureTest, EveryRowOfAChunkedPromptIsAskedForInOrder) {
  submit(1, prompt(50), core::CaptureRequest{kCapture, {0, 2}});
  run();
  EXPECT_EQ(rows, 50);
  EXPECT_EQ(layers, (std::vector<std::int32_t>{0, 2}));
}

TEST_F(CaptureTest, APrefixThatIsCachedIsComputedAgain) {  // B02
  submit(1, prompt(50), {});
  run();
  submit(2, prompt(50), core::CaptureRequest{kCapture, {0}});
  run();
  EXPECT_EQ(cached[2], 0);
  EXPECT_EQ(rows, 50);
}

TEST_F(CaptureTest, ACaptureLeavesNothingInThePrefixCache) {
  submit(1, prompt(50), core::CaptureRequest{kCapture, {0}});
  run();
  EXPECT_EQ(brain.snapshot().cached_pages, 0);
  submit(2, prompt(50), {});
  run();
  EXPECT_EQ(cached[2], 0);
}

TEST_F(CaptureTest, ACaptureThatAsksToFillTheCacheDoes) {
  submit(1, prompt(50), core::CaptureRequest{.id = kCapture, .layers = {0}, .fill_prefix_cache = true});
  run();
  submit(2, prompt(50), {});
  run();
  EXPECT_EQ(cached[2], 48);
}

TEST_F(CaptureTest, RowsOfTheAnswerFollowThoseOfThePrompt) {
  submit(1, prompt(20), core::CaptureRequest{kCapture, {0}}, 6);
  run();
  EXPECT_GE(rows, 25);  // the last token has no row unless lookahead computed one
}

class TightCaptureTest : public CaptureTest {
 protected:
  TightCaptureTest() : CaptureTest(26) {}
};

TEST_F(TightCaptureTest, ARetractedCaptureStartsAgainFromItsFirstToken) {
  submit(1, prompt(28), {}, 44);
  submit(2, prompt(28), core::CaptureRequest{kCapture, {0}}, 44);
  run();
  EXPECT_GE(rows, 71);
  EXPECT_GT(brain.snapshot().retractions, 0u);
}

}  // namespace
}  // namespace levada::sched
