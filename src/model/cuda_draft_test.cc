// Drafts at work on a GPU in float32: the oracle's decoding block by block, the CPU's guesses for every kind of step, and
// what must not change one: graphs, neighbours, a swap. Fails where there is no GPU.
#include <atomic>
#include <thread>

#include "model/draft_support_test.h"

namespace levada::model {
namespace {

std::unique_ptr<device::Device> open(device::DeviceKind kind) {
  auto device = device::open_device(kind);
  if (!device.ok()) {
    ADD_FAILURE() << device.status().to_string();
    std::exit(1);
  }
  return std::move(device).value();
}

std::shared_ptr<const Draft> load(Bench& bench, const DraftFolders& folders) {
  auto draft = bench.model->load_draft(folders.draft());
  if (!draft.ok()) {
    ADD_FAILURE() << draft.status().to_string();
    std::exit(1);
  }
  return std::move(draft).value();
}

class CudaDraft : public testing::Test {
 protected:
  std::vector<core::Token> tokens(const std::string& name, std::size_t first, std::size_t count) const {
    const files::TensorInfo& info = *golden->find(name);
    std::vector<std::int64_t> values(info.bytes.size() / 8);
    std::memcpy(values.data(), info.bytes.data(), info.bytes.size());
    return {values.begin() + static_cast<std::ptrdiff_t>(first),
            values.begin() + static_cast<std::ptrdiff_t>(first + count)};
  }
  std::size_t count(const std::string& name) const { return golden->find(name)->bytes.size() / 8; }

  std::unique_ptr<files::TensorSource> golden =
      std::move(files::open_safetensors(vectors() / "dflash/decode.safetensors")).value();
  DraftFolders folders;
  std::unique_ptr<device::Device> cpu = open(device::DeviceKind::kCpu), gpu = open(device::DeviceKind::kCuda);
};

TEST_F(CudaDraft, EveryBlockOfTheOraclesGreedyDecodingIsTheSame) {
  const std::size_t steps = count("out.starts");
  const auto starts = tokens("out.starts", 0, steps), commits = tokens("out.commit_lens", 0, steps);
  Bench bench(folders.target(), folders.options(), *gpu);
  const auto draft = load(bench, folders);
  Sequence s = bench.sequence(tokens("in.prompt", 0, 7), 80);
  StepTokens step = run_slice(bench, s, {7, 0, 3}, draft);
  s.tokens.push_back(step.sampled[0]);
  for (std::size_t i = 0; i < steps; ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    ASSERT_EQ(s.computed, starts[i]);
    const std::vector<core::Token> guessed = step.proposed;
    ASSERT_EQ(guessed, tokens("out.blocks", i * 4 + 1, 3));
    s.tokens.insert(s.tokens.end(), guessed.begin(), guessed.end());
    step = run_slice(bench, s, {4, 3, 3}, draft);
    ASSERT_EQ(step.sampled, tokens("out.target_argmax", i * 4, 4));
    const std::int32_t right = core::accepted_drafts(step.sampled, guessed);
    ASSERT_EQ(right + 1, commits[i]);
    s.computed -= 3 - right;
    s.tokens.resize(static_cast<std::size_t>(s.computed));
    s.tokens.push_back(step.sampled[static_cast<std::size_t>(right)]);
  }
  EXPECT_EQ(s.tokens, tokens("out.sequence", 0, 55));
}

// What a slice of a mixed step does before it, and in it.
struct Part {
  int from, length, before;
  DraftSlice slice;
};

// Runs the same parts, each prepared alone, in one step on both devices, and on the GPU through graphs and launch by launch.
struct BothDevices {
  BothDevices(const DraftFolders& folders, device::Device& cpu, device::Device& gpu)
      : on_cpu(folders.target(), folders.options(), cpu),
        on_gpu(folders.target(), folders.options(), gpu),
        launched(folders.target(), folders.options(), gpu),
        cpu_draft(load(on_cpu, folders)),
        gpu_draft(load(on_gpu, folders)),
        launched_draft(load(launched, folders)) {
    launched.pool = std::move(launched.model->make_kv_pool(Bench::kPages)).value();  // not the one that graphs know
    for (std::int32_t page = 0; page < Bench::kPages; ++page) launched.pool->poison(page);
  }
  static StepTokens run(Bench& bench, const std::shared_ptr<const Draft>& draft, const std::vector<core::Token>& ids,
                        const std::vector<Part>& parts) {
    std::vector<Sequence> all;
    core::StepPlan plan;
    for (const Part& part : parts) {
      all.push_back(bench.sequence({ids.begin() + part.from, ids.begin() + part.from + part.length}, 12));
      if (part.before > 0) run_slice(bench, all.back(), {part.before}, draft);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) add_slice(plan, all[i], parts[i].slice);
    StepTokens step = run_step(bench, plan, draft);
    for (const Sequence& s : all) bench.give_back(s);
    return step;
  }
  void expect_equal(const std::vector<core::Token>& ids, const std::vector<Part>& parts, const std::string& what) {
    SCOPED_TRACE(what);
    const StepTokens want = run(on_cpu, cpu_draft, ids, parts), got = run(on_gpu, gpu_draft, ids, parts),
                     again = run(on_gpu, gpu_draft, ids, parts), plain = run(launched, launched_draft, ids, parts);
    EXPECT_EQ(got.sampled, want.sampled);
    EXPECT_EQ(got.proposed, want.proposed);
    EXPECT_EQ(again.proposed, want.proposed) << "the second time";
    EXPECT_EQ(plain.sampled, want.sampled) << "launch by launch";
    EXPECT_EQ(plain.proposed, want.proposed) << "launch by launch";
  }
  Bench on_cpu, on_gpu, launched;
  std::shared_ptr<const Draft> cpu_draft, gpu_draft, launched_draft;
};

// Every kind of step: [verify][chunk][plain][plain, proposing].
void every_kind_equals_the_cpu(const DraftFolders& folders, device::Device& cpu, device::Device& gpu,
                               const std::vector<core::Token>& ids, std::int32_t draft_from) {
  BothDevices both(folders, cpu, gpu);
  const auto from = [&](int before) { return std::min(draft_from, before); };
  both.expect_equal(ids, {{0, 24, 20, {4, 3, 3, from(20)}}}, "one verifies");
  both.expect_equal(ids, {{3, 12, 11, {1, 0, 3, from(11)}}}, "one decodes and proposes");
  both.expect_equal(ids, {{3, 12, 11, {1, 0, 0, from(11)}}}, "one decodes");
  both.expect_equal(ids, {{0, 40, 0, {40, 0, 3, 0}}}, "a prompt");
  both.expect_equal(ids,
                    {{0, 24, 20, {4, 3, 3, from(20)}}, {5, 30, 26, {4, 3, 3, from(26)}}, {9, 8, 4, {4, 3, 3, from(4)}}},
                    "three verify");
  both.expect_equal(ids,
                    {{0, 24, 20, {4, 3, 3, from(20)}},
                     {5, 10, 9, {1, 0, 2, from(9)}},
                     {9, 9, 7, {2, 1, 1, from(7)}},
                     {1, 14, 13, {1, 0, 0, from(13)}}},
                    "each another number of drafts");
  both.expect_equal(ids,
                    {{0, 24, 20, {4, 3, 3, from(20)}},
                     {5, 30, 5, {25, 0, 0, from(5)}},
                     {9, 12, 11, {1, 0, 2, from(11)}},
                     {2, 31, 30, {1, 0, 3, from(30)}}},
                    "verify beside a chunk");
  std::vector<Part> many;
  for (int i = 0; i < 21; ++i) many.push_back({i, 12 + i, 8 + i, {4, 3, 1 + i % 3, from(8 + i)}});
  both.expect_equal(ids, many, "many");
}

TEST_F(CudaDraft, EveryKindOfStepGivesTheCpusTokensAndGuesses) {
  every_kind_equals_the_cpu(folders, *cpu, *gpu, tokens("out.sequence", 0, 55), 0);
}

TEST_F(CudaDraft, MissingContextIsMasked) {
  every_kind_equals_the_cpu(folders, *cpu, *gpu, tokens("out.sequence", 0, 55), 6);
}

TEST_F(CudaDraft, SlidingLayersSeeTheirWindow) {
  folders.config.sliding = {true, false};
  folders.config.sliding_window = 5;
  folders.write();
  every_kind_equals_the_cpu(folders, *cpu, *gpu, tokens("out.sequence", 0, 55), 0);
  every_kind_equals_the_cpu(folders, *cpu, *gpu, tokens("out.sequence", 0, 55), 4);
}

// Decodes the oracle's prompt, with `draft_of(step)` in use; a draft that comes anew finds no context of its own before.
std::vector<core::Token> decode(Bench& bench, std::vector<core::Token> prompt,
                                const std::function<std::shared_ptr<const Draft>(int)>& draft_of,
                                std::vector<core::Token>* guesses) {
  Sequence s = bench.sequence(std::move(prompt), 80);
  std::shared_ptr<const Draft> last_draft = draft_of(0);
  StepTokens step = run_slice(bench, s, {7, 0, 3}, last_draft);
  s.tokens.push_back(step.sampled[0]);
  std::int32_t from = 0;
  for (int i = 1; s.tokens.size() < 55; ++i) {
    const std::shared_ptr<const Draft> draft = draft_of(i);
    if (draft != last_draft) from = s.computed;
    last_draft = draft;
    const std::vector<core::Token> guessed = step.proposed;
    guesses->insert(guesses->end(), guessed.begin(), guessed.end());
    const auto n = static_cast<std::int32_t>(guessed.size());
    s.tokens.insert(s.tokens.end(), guessed.begin(), guessed.end());
    step = run_slice(bench, s, {1 + n, n, 3, from}, draft);
    const std::int32_t right = core::accepted_drafts(step.sampled, guessed);
    s.computed -= n - right;
    s.tokens.resize(static_cast<std::size_t>(s.computed));
    s.tokens.push_back(step.sampled[static_cast<std::size_t>(right)]);
  }
  s.tokens.resize(55);
  bench.give_back(s);
  return s.tokens;
}

TEST_F(CudaDraft, SwapsBetweenStepsChangeGuessesButNoToken) {
  DraftFolders other, smaller;
  for (auto& [name, tensor] : other.tensors) {  // the same geometry, worse
    if (name.find("mlp") == std::string::npos) continue;
    auto* numbers = reinterpret_cast<float*>(tensor.bytes.data());
    for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) numbers[i] *= -0.5f;
  }
  other.write();
  smaller.config.layers = 1;
  smaller.config.sliding = {false};
  std::erase_if(smaller.tensors, [](const auto& entry) { return entry.first.starts_with("layers.1."); });
  smaller.write();
  std::vector<core::Token> guesses[2], tokens_of[2];
  for (const int d : {0, 1}) {
    Bench bench(folders.target(), folders.options(), d == 0 ? *cpu : *gpu);
    const std::shared_ptr<const Draft> drafts[] = {load(bench, folders), load(bench, other), load(bench, smaller)};
    const int order[] = {0, 0, 1, 1, 0, 2, 2, 1, 0};
    tokens_of[d] = decode(
        bench, tokens("in.prompt", 0, 7), [&](int i) { return drafts[order[i % 9]]; }, &guesses[d]);
  }
  EXPECT_EQ(tokens_of[0], tokens("out.sequence", 0, 55));
  EXPECT_EQ(tokens_of[1], tokens("out.sequence", 0, 55));
  EXPECT_EQ(guesses[1], guesses[0]);
}

// Loading allocates; steps record graphs meanwhile, for every number of requests anew.
TEST_F(CudaDraft, DraftsAreLoadedBesideStepsThatRecordGraphs) {
  const std::vector<core::Token> ids = tokens("out.sequence", 0, 55);
  Bench bench(folders.target(), folders.options(), *gpu);
  const auto draft = load(bench, folders);
  std::atomic<bool> done = false;
  std::size_t loaded = 0;
  std::thread loading([&] {
    for (; !done; ++loaded) EXPECT_TRUE(bench.model->load_draft(folders.draft()).ok());
  });
  std::vector<Part> parts;
  const StepTokens alone = BothDevices::run(bench, draft, ids, {{0, 24, 20, {4, 3, 3, 0}}});
  for (int requests = 1; requests <= 16; ++requests) {
    parts.push_back({0, 24, 20, {4, 3, 3, 0}});
    const StepTokens step = BothDevices::run(bench, draft, ids, parts);
    for (std::size_t i = 0; i < step.proposed.size(); ++i) ASSERT_EQ(step.proposed[i], alone.proposed[i % 3]) << i;
    ASSERT_EQ(step.proposed.size(), 3 * parts.size());
  }
  done = true;
  loading.join();
  EXPECT_GT(loaded, 0u);
}

TEST_F(CudaDraft, WhatDoesNotFitIsRefused) {
  ModelOptions options = folders.options();
  options.draft_room.reset();
  Bench without(folders.target(), options, *gpu);
  EXPECT_EQ(without.model->load_draft(folders.draft()).status().code(), StatusCode::kResourceExhausted);
  options = folders.options();
  options.draft_room->kv_width = 8;
  Bench narrow(folders.target(), options, *gpu);
  EXPECT_EQ(narrow.model->load_draft(folders.draft()).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace levada::model
