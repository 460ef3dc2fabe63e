// Drafts at work on the CPU: the oracle's greedy decoding block by block, its cached keys and values, and what must not
// change a guess: neighbours, rejected rows, pages, a swap.
#include "model/draft_support_test.h"

namespace levada::model {
namespace {

class DraftDecode : public testing::Test {
 protected:
  std::vector<std::int64_t> integers(const std::string& name) const {
    const files::TensorInfo& info = *golden->find(name);
    std::vector<std::int64_t> values(info.bytes.size() / 8);
    std::memcpy(values.data(), info.bytes.data(), info.bytes.size());
    return values;
  }
  std::vector<float> floats(const std::string& name) const {
    const files::TensorInfo& info = *golden->find(name);
    std::vector<float> values(static_cast<std::size_t>(info.elements()));
    files::decode_to_f32(info, 0, info.elements(), values.data());
    return values;
  }
  std::vector<core::Token> tokens(const std::string& name, std::size_t count) const {
    const std::vector<std::int64_t> all = integers(name);
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::shared_ptr<const Draft> load(Bench& bench) const {
    auto draft = bench.model->load_draft(folders.draft());
    EXPECT_TRUE(draft.ok()) << draft.status().to_string();
    return std::move(draft).value();
  }
  void expect_context_of_step_3(const Bench& bench, const Sequence& sequence) const {
    for (int layer = 0; layer < 2; ++layer) {
      for (int plane = 0; plane < 2; ++plane) {
        const std::vector<float> want =
            floats("mid.step3.layer" + std::to_string(layer) + (plane == 0 ? ".ctx_k" : ".ctx_v"));
        for (std::int32_t p = 0; p < 11; ++p) {
          EXPECT_LE(largest_difference(plane_row(bench, sequence, 2 + plane, layer, p, 16),
                                       std::span(want).subspan(static_cast<std::size_t>(p) * 16, 16)),
                    1e-5f)
              << "layer " << layer << " plane " << plane << " position " << p;
        }
      }
    }
  }
  void expect_same_guesses_alone_and_together();
  // Speculates until `count` tokens follow the prompt, whose first step has run.
  void speculate(Bench& bench, Sequence& sequence, StepTokens& last, std::size_t count,
                 const std::shared_ptr<const Draft>& draft) const {
    while (sequence.tokens.size() < count) {
      const auto drafts = static_cast<std::int32_t>(last.proposed.size());
      const std::vector<core::Token> guessed = last.proposed;
      sequence.tokens.insert(sequence.tokens.end(), guessed.begin(), guessed.end());
      last = run_slice(bench, sequence, {1 + drafts, drafts, 3}, draft);
      commit(sequence, last, guessed);
    }
  }
  // Cuts the guesses that were wrong and puts the step's last token behind the rest.
  static std::int32_t commit(Sequence& sequence, const StepTokens& step, const std::vector<core::Token>& guessed) {
    const std::int32_t right = core::accepted_drafts(step.sampled, guessed);
    const std::int32_t wrong = static_cast<std::int32_t>(guessed.size()) - right;
    sequence.computed -= wrong;
    sequence.tokens.resize(sequence.tokens.size() - static_cast<std::size_t>(wrong));
    sequence.tokens.push_back(step.sampled[static_cast<std::size_t>(right)]);
    return right;
  }

  std::unique_ptr<files::TensorSource> golden =
      std::move(files::open_safetensors(vectors() / "dflash/decode.safetensors")).value();
  DraftFolders folders;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

TEST_F(DraftDecode, EveryBlockOfTheOraclesGreedyDecodingIsTheSame) {
  const std::vector<std::int64_t> starts = integers("out.starts"), blocks = integers("out.blocks"),
                                  argmax = integers("out.target_argmax"), commits = integers("out.commit_lens");
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(tokens("in.prompt", 7), 80);
  StepTokens step = run_slice(bench, sequence, {7, 0, 3}, draft);
  sequence.tokens.push_back(step.sampled[0]);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    ASSERT_EQ(sequence.computed, starts[i]) << "step " << i;
    std::vector<core::Token> block{sequence.tokens.back()};
    block.insert(block.end(), step.proposed.begin(), step.proposed.end());
    ASSERT_EQ(block, (std::vector<core::Token>(blocks.begin() + static_cast<std::ptrdiff_t>(i) * 4,
                                               blocks.begin() + static_cast<std::ptrdiff_t>(i) * 4 + 4)))
        << "step " << i;
    if (i == 3) expect_context_of_step_3(bench, sequence);
    const std::vector<core::Token> guessed = step.proposed;
    sequence.tokens.insert(sequence.tokens.end(), guessed.begin(), guessed.end());
    step = run_slice(bench, sequence, {4, 3, 3}, draft);
    ASSERT_EQ(step.sampled, (std::vector<core::Token>(argmax.begin() + static_cast<std::ptrdiff_t>(i) * 4,
                                                      argmax.begin() + static_cast<std::ptrdiff_t>(i) * 4 + 4)))
        << "step " << i;
    ASSERT_EQ(commit(sequence, step, guessed) + 1, commits[i]) << "step " << i;
  }
  EXPECT_EQ(sequence.tokens, tokens("out.sequence", 55));
}

TEST_F(DraftDecode, AfterRejectionsTheContextOfWhatWasCommittedIsThatOfAFreshRun) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(tokens("in.prompt", 7), 80);
  StepTokens step = run_slice(bench, sequence, {7, 0, 3}, draft);
  sequence.tokens.push_back(step.sampled[0]);
  speculate(bench, sequence, step, 50, draft);
  Sequence fresh = bench.sequence(sequence.tokens, 8);
  const StepTokens whole = run_slice(bench, fresh, {sequence.computed, 0, 0}, draft);
  EXPECT_EQ(whole.proposed, std::vector<core::Token>{});
  for (int plane = 2; plane < 4; ++plane) {
    for (int layer = 0; layer < 2; ++layer) {
      for (std::int32_t p = 0; p < sequence.computed; ++p) {
        ASSERT_EQ(largest_difference(plane_row(bench, sequence, plane, layer, p, 16),
                                     plane_row(bench, fresh, plane, layer, p, 16)),
                  0)
            << "plane " << plane << " layer " << layer << " position " << p;
      }
    }
  }
}

// One step holds: [a verifies and proposes][b prefills in part, proposes nothing][c decodes and proposes two][d proposes]
void DraftDecode::expect_same_guesses_alone_and_together() {
  const std::vector<core::Token> ids = tokens("out.sequence", 55);
  const auto part = [&](int first, int count) {
    return std::vector<core::Token>(ids.begin() + first, ids.begin() + first + count);
  };
  const auto prepare = [&](Bench& bench, const std::shared_ptr<const Draft>& draft) {
    std::vector<Sequence> all;
    const DraftSlice before[] = {{20}, {5}, {11}, {30}};
    const int lengths[] = {24, 30, 12, 31};
    for (int i = 0; i < 4; ++i) {
      all.push_back(bench.sequence(part(i * 5, lengths[i]), 12));
      run_slice(bench, all.back(), before[i], draft);
    }
    return all;
  };
  const DraftSlice slices[] = {{4, 3, 3}, {20, 0, 0}, {1, 0, 2}, {1, 0, 3}};
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  std::vector<core::Token> sampled, proposed;
  std::vector<Sequence> alone = prepare(bench, draft), together = prepare(bench, draft);
  for (std::size_t i = 0; i < 4; ++i) {
    const StepTokens step = run_slice(bench, alone[i], slices[i], draft);
    sampled.insert(sampled.end(), step.sampled.begin(), step.sampled.end());
    proposed.insert(proposed.end(), step.proposed.begin(), step.proposed.end());
  }
  core::StepPlan plan;
  for (std::size_t i = 0; i < 4; ++i) add_slice(plan, together[i], slices[i]);
  const StepTokens step = run_step(bench, plan, draft);
  EXPECT_EQ(step.sampled, sampled);
  EXPECT_EQ(step.proposed, proposed);
  EXPECT_EQ(step.proposed.size(), 8u);
  for (std::size_t i = 0; i < 4; ++i) {  // not only the guesses: every number they came from
    const std::int32_t end = together[i].computed + (i == 0 ? 0 : slices[i].propose);
    for (std::int32_t p = 0; p < end; ++p) {
      ASSERT_EQ(largest_difference(plane_row(bench, alone[i], 3, 1, p, 16), plane_row(bench, together[i], 3, 1, p, 16)),
                0)
          << "request " << i << " position " << p;
    }
  }
}

TEST_F(DraftDecode, GuessesAreTheSameAloneAndBesideOthers) { expect_same_guesses_alone_and_together(); }

TEST_F(DraftDecode, GuessesOfARoughDraftAreTheSameAloneAndBesideOthers) {
  folders.store_as_bfloat();
  expect_same_guesses_alone_and_together();
}

// Q8_0 and a byte for each activation: where the oracle's draft is sure, the guess is the same.
TEST_F(DraftDecode, ARoughDraftMostlyGuessesAsTheOraclesDoes) {
  folders.store_as_bfloat();
  const std::vector<std::int64_t> starts = integers("out.starts"), blocks = integers("out.blocks");
  const std::vector<core::Token> ids = tokens("out.sequence", 55);
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  int same = 0, all = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    Sequence sequence = bench.sequence({ids.begin(), ids.begin() + starts[i]}, 8);
    const StepTokens step = run_slice(bench, sequence, {static_cast<std::int32_t>(starts[i]), 0, 3}, draft);
    for (std::size_t o = 0; o < 3; ++o, ++all) same += step.proposed[o] == blocks[i * 4 + 1 + o] ? 1 : 0;
    bench.give_back(sequence);
  }
  EXPECT_GE(same, all * 9 / 10) << same << " of " << all;
}

TEST_F(DraftDecode, APromptWhosePagesAreSharedGetsTheSameGuesses) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  const std::vector<core::Token> ids = tokens("out.sequence", 18);
  Sequence first = bench.sequence(ids, 8), second = bench.sequence(ids, 8);
  const StepTokens cold = run_slice(bench, first, {18, 0, 3}, draft);
  std::copy(first.pages.begin(), first.pages.begin() + 4, second.pages.begin());  // 16 tokens are reused
  second.computed = 16;
  const StepTokens warm = run_slice(bench, second, {2, 0, 3}, draft);
  EXPECT_EQ(warm.sampled, cold.sampled);
  EXPECT_EQ(warm.proposed, cold.proposed);
}

TEST_F(DraftDecode, HiddenStatesAndLogitsAreAsBeforeAfterSampling) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(tokens("out.sequence", 12), 8);
  core::StepPlan plan;
  add_slice(plan, sequence, {12, 0, 3});
  auto forward = std::move(bench.model->begin(plan, *bench.pool, draft)).value();
  ASSERT_TRUE(forward->all_layers().ok());
  const std::vector<std::int32_t> rows{3, 11};
  const auto copy = [](const device::TensorView& view) {
    return std::vector<float>(view.as<float>(), view.as<float>() + view.elements());
  };
  const std::vector<float> logits = copy(std::move(forward->logits(rows)).value()), hidden = copy(forward->hidden());
  EXPECT_EQ(std::move(std::move(forward->sample()).value()->wait()).value().proposed.size(), 3u);
  EXPECT_EQ(copy(forward->hidden()), hidden);
  EXPECT_EQ(copy(std::move(forward->logits(rows)).value()), logits);
}

// Another draft takes over between two steps, and the first comes back: each guesses as if alone.
TEST_F(DraftDecode, ASwapTakesPlaceBetweenStepsAndLeavesTheTargetAlone) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto first = load(bench);
  std::swap(folders.tensors["layers.0.mlp.gate_proj.weight"], folders.tensors["layers.1.mlp.gate_proj.weight"]);
  folders.write();
  const auto second = load(bench);
  const std::vector<core::Token> ids = tokens("out.sequence", 20);
  const auto alone = [&](const std::shared_ptr<const Draft>& draft) {
    Sequence sequence = bench.sequence(ids, 8);
    return run_slice(bench, sequence, {20, 0, 3}, draft);
  };
  const StepTokens a = alone(first), b = alone(second), again = alone(first);
  EXPECT_NE(a.proposed, b.proposed);
  EXPECT_EQ(a.sampled, b.sampled);
  EXPECT_EQ(again.proposed, a.proposed);
}

}  // namespace
}  // namespace levada::model
