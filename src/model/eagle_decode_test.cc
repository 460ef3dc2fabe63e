// EAGLE-3 drafts at work on the CPU: chains equal the rollouts of nn/eagle_draft.h (held to the oracle) step for step, over
// the oracle's weights and in service, whatever the chunks and rejections before; and a draft that is right for a known
// reason is always right.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <numbers>

#include "kernels/thread_pool.h"
#include "model/draft_checkpoint.h"
#include "model/eagle_runner.h"
#include "model/eagle_support_test.h"
#include "nn/eagle_draft.h"
#include "nn/tensor.h"

namespace levada::model {
namespace {

at::Tensor eagle_tensor(const StoredTensor& stored) {
  return at::from_blob(const_cast<char*>(stored.bytes.data()), stored.shape, at::TensorOptions().dtype(at::kFloat));
}

nn::EagleGeometry eagle_geometry(const DraftConfig& c, std::int64_t features, int steps) {
  nn::EagleGeometry g;
  g.hidden = c.hidden, g.intermediate = c.intermediate, g.heads = c.heads, g.kv_heads = c.kv_heads;
  g.head_dim = c.head_dim, g.features = features, g.vocabulary = c.draft_vocabulary, g.steps = steps;
  g.eps = static_cast<float>(c.norm_eps), g.rope_theta = c.rope_theta;
  return g;
}

// What a chain of `steps` drafts after every row: `next` is the token behind each, `features` are the target's states. Step
// for step: each is fed what the one before it drafted.
std::vector<std::vector<core::Token>> rollouts(const DraftConfig& c, const std::map<std::string, StoredTensor>& tensors,
                                               const at::Tensor& table, const std::vector<std::int64_t>& offsets,
                                               const at::Tensor& features, std::vector<std::int64_t> next, int steps) {
  at::set_num_threads(1);  // the rows are few, and the team of threads would wait for cores
  const nn::EagleGeometry g = eagle_geometry(c, features.size(1), steps);
  const at::Tensor flat = at::zeros({nn::eagle_parameters(g)});
  for (const nn::NamedSlice& slice : nn::eagle_slices(g)) {
    flat.narrow(0, slice.first, slice.count).copy_(eagle_tensor(tensors.at(slice.name)).flatten());
  }
  // One token more than rows: the one behind the last row, whose own features nobody sees.
  std::vector<std::int64_t> ids{0};
  ids.insert(ids.end(), next.begin(), next.end());
  const std::vector<std::int64_t> mask(ids.size(), 1);
  const nn::EagleSequence sequence{ids, mask};
  nn::EagleBatch batch = nn::make_eagle_batch(g, std::span(&sequence, 1), at::kCPU);
  const auto ops = nn::make_cpu_draft_ops();
  nn::Scratch scratch(at::kCPU);
  nn::EagleDraft draft(g, *dynamic_cast<nn::TileOps*>(ops.get()), scratch);
  const nn::EagleTensors weights = nn::bind_eagle(g, flat);
  const at::Tensor rows = at::cat({features, at::zeros({1, features.size(1)})});
  std::vector<std::vector<core::Token>> chains(next.size());
  for (int step = 0; step < steps; ++step) {
    const at::Tensor y = draft.forward(batch, weights, rows, table);
    const auto count = static_cast<std::int64_t>(next.size());
    const at::Tensor best = y.narrow(0, step * count, count).matmul(weights.lm_head.t()).argmax(1);
    for (std::size_t row = 0; row < next.size(); ++row) {
      const std::int64_t i = best[static_cast<std::int64_t>(row)].item<std::int64_t>();
      next[row] = i + offsets[static_cast<std::size_t>(i)];
      chains[row].push_back(static_cast<core::Token>(next[row]));
    }
    if (step + 1 < steps) batch.row_ids[static_cast<std::size_t>(step)] = at::tensor(next);
  }
  return chains;
}

// The oracle's draft, run over its own features.
class EagleOracleChains : public testing::Test {
 protected:
  EagleOracleChains() {
    config.kind = DraftKind::kEagle3, config.block_size = kEagleBlock;
    config.hidden = 64, config.intermediate = 96, config.layers = 1, config.heads = 4, config.kv_heads = 2;
    config.head_dim = 32, config.vocabulary = 512, config.draft_vocabulary = 128, config.num_target_layers = 8;
    config.target_layer_ids = {1, 3, 5}, config.sliding = {false}, config.dtype = "float32";
    for (const files::TensorInfo& info : golden->tensors()) {
      const StoredTensor stored{info.encoding == files::Encoding::kF32  ? "F32"
                                : info.encoding == files::Encoding::kU8 ? "U8"
                                                                        : "I64",
                                info.shape,
                                {reinterpret_cast<const char*>(info.bytes.data()), info.bytes.size()}};
      if (info.name.starts_with("w.")) tensors[info.name.substr(2)] = stored;
      if (info.name == "in.d2t" || info.name == "in.t2d") tensors[info.name.substr(3)] = stored;
    }
    std::ofstream(folder.path() / "config.json") << draft_config_json(config);
    write_safetensors(folder.path() / "model.safetensors", tensors);
  }
  at::Tensor table(const std::string& name, at::ScalarType type = at::kFloat) const {
    const files::TensorInfo& info = *golden->find(name);
    return at::from_blob(const_cast<std::byte*>(info.bytes.data()), info.shape, at::TensorOptions().dtype(type));
  }
  std::shared_ptr<const CpuEagle> load() {
    ModelConfig target;
    target.hidden = 64, target.vocabulary = 512, target.layers = 8;
    auto source = make_draft_opener(target, room_for(config))->open(folder.path());
    EXPECT_TRUE(source.ok()) << source.status().to_string();
    nn::Projection embedding;
    embedding.parts.emplace_back(table("t.embed_tokens.weight"));
    return std::make_shared<const CpuEagle>(*source.value(), false, std::move(embedding), 64);
  }
  // Rows [first, first + count) of a sequence in one step; `next` is what a sample gave, or stands behind the chunk.
  std::vector<core::Token> run_rows(EagleRunner& runner, const at::Tensor& ids, const at::Tensor& features,
                                    std::int32_t first, std::int32_t count, bool samples, std::int32_t propose) {
    core::StepPlan plan;
    core::PlanSlice slice;
    slice.range = {core::RequestId{1}, first, count};
    slice.block_table_pages = 12;
    slice.propose = propose;
    for (std::int32_t page = 0; page < 12; ++page) plan.block_tables.push_back(11 - page);
    for (std::int32_t i = 0; i < count; ++i) {
      plan.tokens.push_back(static_cast<core::Token>(ids[first + i].item<std::int64_t>()));
      plan.positions.push_back(first + i);
    }
    const auto next = static_cast<core::Token>(ids[first + count].item<std::int64_t>());
    samples ? slice.sample_row = 0 : slice.next_token = next;
    plan.slices.push_back(slice);
    const kernels::PagedBatch batch{.page_size = 2};
    runner.begin(plan, batch, {{k, v}});
    for (std::int64_t i = 0; i < 3; ++i) {
      runner.after_layer(config.target_layer_ids[static_cast<std::size_t>(i)],
                         features.narrow(0, first, count).narrow(1, i * 64, 64).contiguous());
    }
    const std::vector<core::Token> sampled{next};
    return runner.propose(plan, samples ? std::span(sampled) : std::span<const core::Token>());
  }

  std::unique_ptr<files::TensorSource> golden =
      std::move(files::open_safetensors(vectors() / "dflash/eagle3.safetensors")).value();
  DraftConfig config;
  std::map<std::string, StoredTensor> tensors;
  test::TemporaryFolder folder;
  at::Tensor k = at::zeros({12, 2, 64}), v = at::zeros({12, 2, 64});
};

TEST_F(EagleOracleChains, EveryRowsChainIsItsRollout) {
  kernels::ThreadPool pool(1);
  const auto ops = kernels::make_cpu_ops(pool);
  const auto backend = nn::make_cpu_backend(*ops);
  EagleRunner runner(load(), *backend, *ops);
  const at::Tensor offsets = table("in.d2t", at::kLong), lengths = table("in.attention_mask").sum(1);
  const std::vector<std::int64_t> d2t(offsets.data_ptr<std::int64_t>(), offsets.data_ptr<std::int64_t>() + 128);
  for (std::int64_t b = 0; b < 2; ++b) {
    const at::Tensor ids = table("in.input_ids", at::kLong)[b], features = table("in.aux_hidden")[b];
    const at::Tensor logits = table("mid.step0.logits")[b];
    const auto rows = static_cast<std::int32_t>(lengths[b].item<float>()) - 1;
    std::vector<std::int64_t> next;
    for (std::int32_t t = 0; t < rows; ++t) next.push_back(ids[t + 1].item<std::int64_t>());
    const auto want =
        rollouts(config, tensors, table("t.embed_tokens.weight"), d2t, features.narrow(0, 0, rows), next, 5);
    for (std::int32_t t = 0; t < rows; ++t) {
      const std::int32_t before = t / 2;  // in a step of their own: a chunk that does not end the prompt
      if (before > 0) run_rows(runner, ids, features, 0, before, false, 0);
      const auto got = run_rows(runner, ids, features, before, t + 1 - before, true, 5);
      EXPECT_EQ(got, want[static_cast<std::size_t>(t)]) << "sequence " << b << ", row " << t;
      const std::int64_t best = logits[t].argmax().item<std::int64_t>();
      EXPECT_EQ(got.at(0), best + d2t[static_cast<std::size_t>(best)]) << "the oracle's own first guess";
    }
  }
}

class EagleDecode : public testing::Test {
 protected:
  std::shared_ptr<const Draft> load(Bench& bench) const {
    auto draft = bench.model->load_draft(folders.draft());
    EXPECT_TRUE(draft.ok()) << draft.status().to_string();
    return std::move(draft).value();
  }
  // The chain behind all but the last of `tokens`, drafted by the training forward from position `from` on.
  std::vector<core::Token> trained(const std::vector<core::Token>& tokens, std::int64_t from, int steps) {
    Bench plain(folders.target(), in_float32(4), *device);
    const auto rows = static_cast<std::int64_t>(tokens.size()) - 1;
    Sequence sequence = plain.sequence(tokens);
    const at::Tensor features = at::zeros({rows, 96});
    PlanBuilder builder;
    builder.add(sequence, static_cast<std::int32_t>(rows));
    plain.run(builder.plan(), [&](int layer, device::TensorView hidden) {
      const auto& ids = folders.config.target_layer_ids;
      const auto at = std::find(ids.begin(), ids.end(), layer);
      if (at != ids.end()) features.narrow(1, (at - ids.begin()) * 32, 32).copy_(nn::wrap(hidden, 0));
    });
    const auto target = std::move(files::open_safetensors(folders.target() / "model.safetensors")).value();
    const files::TensorInfo& info = *target->find("model.embed_tokens.weight");
    const at::Tensor table =
        at::from_blob(const_cast<std::byte*>(info.bytes.data()), info.shape, at::TensorOptions().dtype(at::kFloat));
    return rollouts(folders.config, folders.tensors, table, folders.offsets, features.narrow(0, from, rows - from),
                    {tokens.begin() + from + 1, tokens.end()}, steps)
        .back();
  }

  EagleFolders folders;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  const std::vector<core::Token> prompt{5, 17, 30, 41, 2, 9, 33, 21, 8, 50, 12};
};

TEST_F(EagleDecode, ChainsInServiceAreTheRolloutsOfTraining) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(prompt, 80);
  run_chunk(bench, sequence, 4, draft);
  run_chunk(bench, sequence, 3, draft);
  StepTokens step = run_slice(bench, sequence, {4, 0, 5}, draft);
  sequence.tokens.push_back(step.sampled[0]);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(step.proposed, trained(sequence.tokens, 0, 5)) << "step " << i;
    if (i % 3 == 2) step.proposed.assign({step.proposed[0]});  // fewer are verified than were proposed
    if (i % 4 == 3) step.proposed.clear();
    verify_guesses(bench, sequence, step, 5, draft);
  }
}

TEST_F(EagleDecode, WhatAnotherDraftWroteIsNotSeen) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(prompt, 20);
  run_chunk(bench, sequence, 5, draft);
  for (int plane = 2; plane < 4; ++plane) {
    for (std::int32_t p = 0; p < 5; ++p) std::ranges::fill(plane_row(bench, sequence, plane, 0, p, 16), 7.0f);
  }
  StepTokens step = run_slice(bench, sequence, {6, 0, 7, 5}, draft);
  sequence.tokens.push_back(step.sampled[0]);
  EXPECT_EQ(step.proposed, trained(sequence.tokens, 5, 7));
}

// Guesses are nearly always wrong here: what they wrote lies under what came.
TEST_F(EagleDecode, AfterRejectionsTheContextOfWhatWasCommittedIsThatOfAFreshRun) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(prompt, 80);
  StepTokens step = run_slice(bench, sequence, {11, 0, 7}, draft);
  sequence.tokens.push_back(step.sampled[0]);
  for (int i = 0; i < 8; ++i) verify_guesses(bench, sequence, step, 7, draft);
  Sequence fresh = bench.sequence(sequence.tokens, 12);
  run_chunk(bench, fresh, sequence.computed, draft);
  for (int plane = 2; plane < 4; ++plane) {
    for (std::int32_t p = 0; p < sequence.computed; ++p) {
      ASSERT_EQ(
          largest_difference(plane_row(bench, sequence, plane, 0, p, 16), plane_row(bench, fresh, plane, 0, p, 16)), 0)
          << "plane " << plane << " position " << p;
    }
  }
}

TEST_F(EagleDecode, ARowWhoseNextTokenNobodyKnowsIsLeftAlone) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  Sequence sequence = bench.sequence(prompt, 20);
  run_chunk(bench, sequence, 5, draft, /*says_next=*/false);
  EXPECT_FALSE(std::isnan(plane_row(bench, sequence, 2, 0, 3, 16)[0]));
  EXPECT_TRUE(std::isnan(plane_row(bench, sequence, 2, 0, 4, 16)[0])) << "still the pool's poison";
}

TEST_F(EagleDecode, RequestsOfOneStepDraftAsAlone) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto draft = load(bench);
  const auto rest = [&](int first) { return std::vector<core::Token>(prompt.begin() + first, prompt.end()); };
  const DraftSlice slices[] = {{11, 0, 7}, {8, 0, 0}, {6, 2, 3}, {3, 0, 5}};
  const int firsts[] = {0, 3, 5, 8};
  std::vector<core::Token> alone;
  core::StepPlan plan;
  std::vector<Sequence> together;
  for (int i = 0; i < 4; ++i) {
    Sequence one = bench.sequence(rest(firsts[i]), 20);
    const StepTokens step = run_slice(bench, one, slices[i], draft);
    alone.insert(alone.end(), step.proposed.begin(), step.proposed.end());
    together.push_back(bench.sequence(rest(firsts[i]), 20));
  }
  for (std::size_t i = 0; i < 4; ++i) add_slice(plan, together[i], slices[i]);
  EXPECT_EQ(run_step(bench, plan, draft).proposed, alone);
}

// Stored as bfloat16 it is kept as Q8_0 and computed roughly: its first guesses are mostly the same.
TEST_F(EagleDecode, ARoughDraftMostlyGuessesTheSame) {
  Bench bench(folders.target(), folders.options(), *device);
  const auto wide = load(bench);
  for (auto& [name, tensor] : folders.tensors) {
    if (tensor.dtype != "F32") continue;
    std::string halves;
    for (std::size_t i = 0; i < tensor.bytes.size(); i += 4) halves += tensor.bytes.substr(i + 2, 2);
    tensor.bytes = halves, tensor.dtype = "BF16";
  }
  folders.write();
  const auto rough = load(bench);
  EXPECT_LT(rough->bytes(), wide->bytes() / 2);
  int same = 0;
  for (std::int32_t count = 2; count <= 11; ++count) {
    std::vector<core::Token> guesses;
    for (const auto& draft : {wide, rough}) {
      Sequence sequence = bench.sequence({prompt.begin(), prompt.begin() + count}, 9);
      guesses.push_back(run_slice(bench, sequence, {count, 0, 7}, draft).proposed.at(0));
      bench.give_back(sequence);
    }
    same += guesses[0] == guesses[1] ? 1 : 0;
  }
  EXPECT_GE(same, 7) << "of 10";
}

// Tokens stand on a circle, and the next one is one further. The target says so by its head alone; the draft's attention sees
// its own row and nothing else if positions are right, and turns its state by one step, half by the token's angle and half
// by the state's: a wrong token, state, position or mask turns it elsewhere.
class CircleDraft : public EagleDecode {
 protected:
  static constexpr int kTokens = 64, kHidden = 32;
  static constexpr double kStep = 2 * std::numbers::pi / kTokens;

  CircleDraft() {
    zero_target();
    for (auto& [name, tensor] : folders.tensors) {
      if (tensor.dtype == "F32") tensor = filled(tensor.shape, tensor.shape.size() == 1 ? 1.0f : 0.0f);
    }
    folders.config.draft_vocabulary = kTokens;
    folders.tensors.erase("t2d");
    folders.offsets.clear();
    std::vector<float> head;
    for (int row = 0; row < kTokens; ++row) {
      folders.offsets.push_back(kTokens - 1 - 2 * row);  // its rows stand the other way round
      add_angle(head, kTokens - 1 - row, 0);
    }
    folders.tensors["d2t"] = stored_offsets(folders.offsets);
    folders.tensors["lm_head.weight"] = stored_floats(head, {kTokens, kHidden});
    turn("fc.weight", 96, 1, 0);
    set("fc.weight", 96, 2, 2, 1);
    for (int i = 0; i < 2; ++i) {
      for (const int column : {i, kHidden + i}) set("midlayer.self_attn.v_proj.weight", 64, i, column, 0.125f);
    }
    turn("midlayer.self_attn.o_proj.weight", 32, 1, -1);
    for (int i = 0; i < 8; ++i) {
      set("midlayer.self_attn.k_proj.weight", 64, i, 2, 4);  // times 4: the constant, normed
      for (const int row : {i, 16 + i}) set("midlayer.self_attn.q_proj.weight", 64, row, 2, 4);
    }
    folders.write();
  }
  static StoredTensor filled(const std::vector<std::int64_t>& shape, float value) {
    return stored_floats(
        std::vector<float>(static_cast<std::size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)), value), shape);
  }
  static void add_angle(std::vector<float>& rows, int token, float constant) {
    rows.resize(rows.size() + kHidden, 0.0f);
    float* const row = rows.data() + rows.size() - kHidden;
    row[0] = static_cast<float>(std::cos(kStep * token));
    row[1] = static_cast<float>(std::sin(kStep * token));
    row[2] = constant;
  }
  void set(const std::string& name, int columns, int row, int column, float value) {
    std::memcpy(folders.tensors[name].bytes.data() + (row * columns + column) * 4, &value, 4);
  }
  // A step round the circle times `scale`, and `own` times what was there.
  void turn(const std::string& name, int columns, float scale, float own) {
    const auto c = static_cast<float>(std::cos(kStep)) * scale + own, s = static_cast<float>(std::sin(kStep)) * scale;
    set(name, columns, 0, 0, c), set(name, columns, 0, 1, -s), set(name, columns, 1, 0, s), set(name, columns, 1, 1, c);
  }
  void zero_target() const {
    const std::filesystem::path file = folders.target() / "model.safetensors";
    std::map<std::string, StoredTensor> target;
    {
      const auto source = std::move(files::open_safetensors(file)).value();
      for (const files::TensorInfo& info : source->tensors())
        target[info.name] = filled(info.shape, info.shape.size() == 1 ? 1.0f : 0.0f);
    }
    std::vector<float> table, head;
    for (int token = 0; token < kTokens; ++token) {
      add_angle(table, token, 1);
      add_angle(head, token - 1, 0);
    }
    target["model.embed_tokens.weight"] = stored_floats(table, {kTokens, kHidden});
    target["lm_head.weight"] = stored_floats(head, {kTokens, kHidden});
    write_safetensors(file, target);
  }
  // Of ten steps with seven guesses each.
  int accepted() {
    folders.write();
    Bench bench(folders.target(), folders.options(), *device);
    const auto draft = load(bench);
    Sequence sequence = bench.sequence({5, 6, 7, 8, 9}, 100);
    run_chunk(bench, sequence, 2, draft);
    StepTokens step = run_slice(bench, sequence, {3, 0, 7}, draft);
    sequence.tokens.push_back(step.sampled[0]);
    int right = 0;
    for (int i = 0; i < 10; ++i) right += verify_guesses(bench, sequence, step, 7, draft);
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      EXPECT_EQ(sequence.tokens[i], static_cast<core::Token>((5 + i) % kTokens)) << i;
    }
    return right;
  }
};

TEST_F(CircleDraft, EveryGuessIsRight) { EXPECT_EQ(accepted(), 70); }

TEST_F(CircleDraft, TheStateThatIsFedBackCounts) {
  folders.config.feeds_normed = true;  // four times as long: it is turned too little
  EXPECT_LT(accepted(), 40);
  folders.tensors["norm.weight"] = filled({kHidden}, 0.25f);  // as long as it was
  EXPECT_EQ(accepted(), 70);
}

}  // namespace
}  // namespace levada::model
