#include "bench/spec_bench.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>

#include "bench/draft_stage.h"
#include "bench/spec_prompts.h"
#include "model/draft_support_test.h"
#include "support/temporary_folder.h"
#include "support/vectors.h"

namespace levada::bench {
namespace {

using core::Token;

// Samples for each row the position it will have, and says what it was given.
class Counting final : public core::StepExecutor {
 public:
  void submit(std::unique_ptr<core::StepPlan> plan) override {
    core::StepResult result;
    for (const core::SampleRow& row : plan->samples) result.sampled.push_back(row.position);
    last = *plan;
    sink(std::move(result));
  }
  void set_result_sink(std::function<void(core::StepResult)> s) override { sink = std::move(s); }
  core::StepPlan last;
  std::function<void(core::StepResult)> sink;
};

// A request at position 10 that has had one token of its answer 10, 11, 12 ..: `drafts`, then `propose` more.
std::unique_ptr<core::StepPlan> plan_of(std::vector<Token> drafts, std::int32_t propose) {
  auto plan = std::make_unique<core::StepPlan>();
  plan->draft = core::DraftVersion{1};
  plan->tokens = {10};
  plan->tokens.insert(plan->tokens.end(), drafts.begin(), drafts.end());
  core::PlanSlice slice;
  slice.range = {core::RequestId{7}, 10, static_cast<std::int32_t>(plan->tokens.size())};
  slice.sample_row = 0;
  slice.drafts = static_cast<std::int32_t>(drafts.size());
  slice.propose = propose;
  plan->slices.push_back(slice);
  for (std::size_t i = 0; i < plan->tokens.size(); ++i) {
    core::SampleRow row;
    row.row = static_cast<std::int32_t>(i);
    row.position = 11 + row.row;
    plan->samples.push_back(row);
  }
  return plan;
}

struct Staged {
  explicit Staged(DraftStage::Proposals proposals) : stage(relay, proposals) {
    stage.set_result_sink([this](core::StepResult r) { result = std::move(r); });
    stage.expect(core::RequestId{7}, 10, {10, 11, 12, 13, 14, 15, 16});
  }
  Counting executor;
  Relay relay{executor};
  DraftStage stage;
  core::StepResult result;
};

TEST(DraftStage, RightProposalsAreTheAnswerBehindWhatWasAccepted) {
  Staged staged(DraftStage::Proposals::kRight);
  staged.stage.submit(plan_of({}, 3));
  EXPECT_EQ(staged.result.proposed, (std::vector<Token>{12, 13, 14}));
  staged.stage.submit(plan_of({11, 12, 99}, 3));  // two are right, 13 follows
  EXPECT_EQ(staged.result.proposed, (std::vector<Token>{14, 15, 16}));
  staged.stage.submit(plan_of({11, 12, 13, 14}, 3));
  EXPECT_EQ(staged.result.proposed, (std::vector<Token>{16, 0, 0})) << "behind the end nothing is known";
}

TEST(DraftStage, WrongProposalsAreNeverTheAnswer) {
  Staged staged(DraftStage::Proposals::kWrong);
  staged.stage.expect(core::RequestId{7}, 10, {10, 11, 0, 1, 2});
  staged.stage.submit(plan_of({}, 3));
  EXPECT_EQ(staged.result.proposed, (std::vector<Token>{1, 0, 0}));
}

TEST(DraftStage, TheExecutorSeesNoDraftUnlessItIsItsOwn) {
  Staged made_up(DraftStage::Proposals::kRight), own(DraftStage::Proposals::kOwn);
  made_up.stage.submit(plan_of({11}, 3));
  EXPECT_EQ(made_up.executor.last.draft, core::kNoDraft);
  EXPECT_EQ(made_up.executor.last.slices.front().propose, 0);
  EXPECT_EQ(made_up.executor.last.slices.front().drafts, 1);
  own.stage.submit(plan_of({11}, 3));
  EXPECT_EQ(own.executor.last.draft, core::DraftVersion{1});
  EXPECT_EQ(own.executor.last.slices.front().propose, 3);
  EXPECT_TRUE(own.result.proposed.empty());
}

TEST(DraftStage, CountsWhatIsKeptByPlaceInTheBlock) {
  Staged staged(DraftStage::Proposals::kOwn);
  staged.stage.submit(plan_of({11, 12, 99}, 0));
  staged.stage.submit(plan_of({11}, 0));
  staged.stage.submit(plan_of({}, 0));
  auto prompt = plan_of({}, 0);
  prompt->tokens = {8, 9, 10};
  prompt->slices.front().range = {core::RequestId{7}, 8, 3};
  staged.stage.submit(std::move(prompt));  // no step that decodes
  const DraftCount count = staged.stage.take_count();
  EXPECT_EQ(count.steps, 3);
  EXPECT_EQ(count.drafts, 4);
  EXPECT_EQ(count.accepted, 3);
  EXPECT_EQ(count.length(), 2);
  EXPECT_EQ(count.had, (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(count.kept, (std::vector<std::int64_t>{2, 1, 0}));
  EXPECT_EQ(staged.stage.take_count().steps, 0);
}

class Ticking final : public Clock {
 public:
  std::int64_t now_us() const override { return 1000 * ++reads_; }

 private:
  mutable std::atomic<std::int64_t> reads_{0};
};

// The bench itself, over a model with random weights.
struct SpecBenchTest : testing::Test {
  static std::map<std::string, Case> measure() {
    const auto device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
    auto model = std::move(model::load_model(test::vectors() / "tiny/llama", {.dtype = "float32"}, *device)).value();
    auto pool = std::move(model->make_kv_pool(256)).value();
    SpecBench bench;
    const Ticking
        clock;  // every step takes about as long, whatever the machine does: so does what adaptation makes of it
    bench.clock = &clock;
    bench.prompts = {{5, 6, 7, 8}, {9, 10, 11}, {12, 13, 14, 15, 16}};
    bench.repeating = {{5, 6, 7, 5, 6, 7, 5, 6}};
    bench.eos = {0};
    bench.batches = {1, 3};
    bench.new_tokens = 40;
    bench.scale = 0.001;
    const auto measured = run_spec_bench(std::move(model), std::move(pool), bench);
    EXPECT_TRUE(measured.ok()) << measured.status().to_string();
    std::map<std::string, Case> cases;
    for (const Case& item : *measured) cases[item.name] = item;
    return cases;
  }
};

TEST_F(SpecBenchTest, EveryWayGivesPlainDecodingsAnswersAndTheStepsItsDraftsAreWorth) {
  const std::map<std::string, Case> cases = measure();
  for (const std::string batch : {"_b1", "_b3"}) {
    EXPECT_TRUE(cases.contains("plain" + batch) && cases.contains("plain_repeating" + batch));
    for (const std::string way : {"rejected", "rejected_fixed", "oracle", "ngram", "ngram_repeating"}) {
      ASSERT_TRUE(cases.contains(way + batch)) << way;
      EXPECT_GT(cases.at(way + batch).median, 0) << way;
      EXPECT_GT(cases.at(way + batch + "_speedup").median, 0) << way;
      EXPECT_EQ(cases.at(way + batch + "_equal").median, 1) << way << batch;
      EXPECT_GE(cases.at(way + batch + "_length").median, 1) << way;
    }
    for (const std::string way : {"rejected", "rejected_fixed"}) EXPECT_EQ(cases.at(way + batch + "_length").median, 1);
    const Case& first = cases.at("rejected_fixed" + batch + "_accepted_1");
    EXPECT_EQ(first.median, 0);
    // With adaptation so short an answer may see no draft at all: others have shown what they are worth.
    const auto adapted = cases.find("rejected" + batch + "_accepted_1");
    EXPECT_LT(adapted == cases.end() ? 0 : adapted->second.n, first.n / 2);
    EXPECT_GT(cases.at("oracle" + batch + "_length").median, 3);
    EXPECT_EQ(cases.at("oracle" + batch + "_accepted_1").median, 1);
  }
}

// The oracle's toy target with the draft that was trained for it.
TEST(SpecBenchDraft, ADraftModelIsMeasuredBesideTheOthers) {
  const model::DraftFolders folders;
  const auto device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  auto model = std::move(model::load_model(folders.target(), folders.options(), *device)).value();
  auto pool = std::move(model->make_kv_pool(256)).value();
  const Ticking clock;
  SpecBench bench;
  bench.draft = folders.draft();
  bench.prompts = {{1, 2, 3}, {4, 5, 6, 7}};
  bench.repeating = {{1, 2, 3, 1, 2}};
  bench.batches = {2};
  bench.new_tokens = 40;
  bench.scale = 0.001;
  bench.clock = &clock;
  const auto measured = run_spec_bench(std::move(model), std::move(pool), bench);
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  std::map<std::string, Case> cases;
  for (const Case& item : *measured) cases[item.name] = item;
  EXPECT_EQ(cases.at("draft_b2_equal").median, 1);
  EXPECT_GT(cases.at("draft_b2_length").median, 1);
  EXPECT_GT(cases.at("draft_b2_accepted_1").median, 0);
}

TEST(SpecBenchDraft, ADraftThatCannotBeLoadedIsTheBenchsError) {
  const auto device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  auto model = std::move(model::load_model(test::vectors() / "tiny/llama", {.dtype = "float32"}, *device)).value();
  auto pool = std::move(model->make_kv_pool(64)).value();
  SpecBench bench;
  bench.draft = "/nowhere";
  bench.prompts = bench.repeating = {{1, 2, 3}};
  EXPECT_FALSE(run_spec_bench(std::move(model), std::move(pool), bench).ok());
}

struct Prompts : testing::Test {
  const test::TemporaryFolder folder;
  const std::unique_ptr<text::Tokenizer> tokenizer =
      std::move(text::Tokenizer::from_json(test::vectors() / "smollm2_tokenizer/tokenizer.json")).value();
};

TEST_F(Prompts, AreMessagesOfAFileThroughTheChatTemplate) {
  const auto own = chat_prompts("", *tokenizer).value();
  EXPECT_EQ(own.size(), 16u);
  const std::string line = "Explain to a child why the sky is blue.";
  const auto file =
      folder.write("prompts", line + "\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"" + line + "\"}]}\n");
  EXPECT_EQ(chat_prompts(file, *tokenizer).value(), (std::vector{own[0], own[0]}));
  const auto named = folder.write("named", "{\"id\": \"a\", \"prompt\": \"" + line + "\"}\n");
  EXPECT_EQ(chat_prompts(named, *tokenizer).value(), (std::vector<std::vector<Token>>{own[0]}));
}

TEST_F(Prompts, AFileThatIsNoneIsRefusedWithTheLine) {
  EXPECT_EQ(chat_prompts("/nowhere", *tokenizer).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(chat_prompts(folder.write("empty", "\n"), *tokenizer).ok());
  const Status status = chat_prompts(folder.write("bad", "a question\n{\"text\": 1}\n"), *tokenizer).status();
  EXPECT_NE(status.message().find("prompt 2"), std::string::npos) << status.message();
}

TEST_F(Prompts, RepeatingOnesEndAsTheyDidBefore) {
  for (const std::vector<Token>& prompt : repeating_prompts(*tokenizer)) {
    const std::size_t once = (prompt.size() - 8) / 3;
    for (std::size_t i = once; i < prompt.size(); ++i) ASSERT_EQ(prompt[i], prompt[i - once]);
  }
}

TEST(SpecChart, IsAPng) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() / "spec.png";
  const std::vector<Case> cases{{"oracle_b1_speedup", 3, 3, "x", 2},
                                {"oracle_b16_speedup", 1.5, 1.5, "x", 2},
                                {"oracle_b1_accepted_1", 0.8, 0.8, "share", 9},
                                {"plain_b1", 70, 70, "tok/s", 4}};
  ASSERT_TRUE(write_spec_chart(file, cases).ok());
  std::ifstream in(file, std::ios::binary);
  std::string head(8, '\0');
  in.read(head.data(), 8);
  EXPECT_EQ(head, "\x89PNG\r\n\x1a\n");
  EXPECT_FALSE(write_spec_chart("/nowhere/spec.png", cases).ok());
}

}  // namespace
}  // namespace levada::bench
