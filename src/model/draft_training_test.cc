// Guesses in service against the training forward (nn/dflash_draft.h) at the same anchor: sliding layers, biases, and
// context that is masked because another draft had written it (case B04).
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>

#include "model/draft_support_test.h"
#include "nn/dflash_draft.h"
#include "nn/tensor.h"

namespace levada::model {
namespace {

class DraftTraining : public testing::Test {
 protected:
  DraftTraining() {
    const files::TensorInfo& info = *golden->find("out.sequence");
    const auto* values = reinterpret_cast<const std::int64_t*>(info.bytes.data());
    ids.assign(values, values + 40);
    std::mt19937 random(5);
    for (std::size_t i = 20; i < ids.size(); ++i)
      ids[i] = static_cast<std::int64_t>(random() % 60);  // not its own words
  }
  at::Tensor stored(const std::string& name) const {
    const StoredTensor& tensor = folders.tensors.at(name);
    return at::from_blob(const_cast<char*>(tensor.bytes.data()), tensor.shape, at::TensorOptions().dtype(at::kFloat));
  }
  at::Tensor table(const std::string& name) const {
    const files::TensorInfo& info = *golden->find(name);
    return at::from_blob(const_cast<std::byte*>(info.bytes.data()), info.shape, at::TensorOptions().dtype(at::kFloat));
  }
  void slide(std::vector<bool> sliding, std::int64_t window) {
    folders.config.sliding = std::move(sliding);
    folders.config.sliding_window = window;
  }
  void add_biases() {
    folders.config.attention_bias = true;
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.5f);
    for (const char* layer : {"layers.0.", "layers.1."}) {
      for (const auto& [name, size] : std::map<std::string, std::int64_t>{{"q", 32}, {"k", 16}, {"v", 16}, {"o", 32}}) {
        std::vector<float> values(static_cast<std::size_t>(size));
        for (float& value : values) value = normal(random);
        folders.tensors[std::string(layer) + "self_attn." + name + "_proj.bias"] = {
            "F32", {size}, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
      }
    }
  }
  nn::DraftGeometry geometry() const {
    const DraftConfig& c = folders.config;
    nn::DraftGeometry g;
    g.hidden = c.hidden, g.intermediate = c.intermediate, g.layers = c.layers, g.heads = c.heads;
    g.kv_heads = c.kv_heads, g.head_dim = c.head_dim, g.features = c.features(), g.eps = static_cast<float>(c.norm_eps);
    g.rope_theta = c.rope_theta, g.attention_bias = c.attention_bias;
    for (const bool slides : c.sliding) g.windows.push_back(slides ? c.sliding_window : 0);
    return g;
  }
  // What the training forward guesses at `anchor`, seeing the context from `from` on. Only distances matter to rotary
  // angles: what is not seen is cut off.
  std::vector<core::Token> trained(std::int64_t anchor, std::int64_t from) {
    const nn::DraftGeometry g = geometry();
    const at::Tensor flat = at::empty({nn::draft_parameters(g)}, at::TensorOptions().dtype(at::kFloat));
    for (const nn::NamedSlice& slice : nn::draft_slices(g)) {
      flat.narrow(0, slice.first, slice.count).copy_(stored(slice.name).flatten());
    }
    nn::DraftSequence sequence;
    sequence.anchors = {anchor - from};
    sequence.input_ids = std::span(ids).subspan(static_cast<std::size_t>(from));
    const nn::DraftBatch batch = nn::make_draft_batch(g, std::vector{sequence}, 4, 63, at::kCPU);
    const at::Tensor rows = features.narrow(0, from, anchor - from).contiguous();
    const auto ops = nn::make_cpu_draft_ops();
    nn::Scratch scratch(at::kCPU);
    nn::DflashDraft draft(g, *ops, scratch);
    const at::Tensor y = draft.forward(batch, nn::bind_draft(g, flat), rows,
                                       at::index_select(table("t.embed_tokens.weight"), 0, batch.block_ids));
    const at::Tensor best = at::matmul(y, table("t.lm_head.weight").t()).argmax(1);
    std::vector<core::Token> tokens;
    for (std::int64_t i = 1; i < 4; ++i) tokens.push_back(static_cast<core::Token>(best[i].item<std::int64_t>()));
    return tokens;
  }
  // Captures what the draft reads of the target over all ids.
  void capture(Bench& bench) {
    Sequence sequence = bench.sequence({ids.begin(), ids.end()});
    PlanBuilder builder;
    builder.add(sequence, static_cast<std::int32_t>(ids.size()));
    features = at::empty({static_cast<std::int64_t>(ids.size()), 96}, at::TensorOptions().dtype(at::kFloat));
    bench.run(builder.plan(), [&](int layer, const device::TensorView& hidden) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (folders.config.target_layer_ids[i] != layer) continue;
        features.narrow(1, static_cast<std::int64_t>(i) * 32, 32).copy_(nn::wrap(hidden));
      }
    });
  }
  // At every anchor the block stands on the token that the step before sampled.
  void compare(std::int32_t from) {
    folders.write();
    Bench bench(folders.target(), folders.options(), *device);
    const Status status = nn::guarded("comparing", [&] {
      capture(bench);
      const auto draft = std::move(bench.model->load_draft(folders.draft())).value();
      for (std::int32_t anchor = from + 2; anchor + 4 < 40; ++anchor) {
        Sequence sequence = bench.sequence({ids.begin(), ids.begin() + anchor}, 8);
        run_slice(bench, sequence, {anchor - 1, 0, 0}, draft);
        for (std::int32_t p = 0; p < from; ++p) {  // written by another draft: nothing of it may be read
          for (int plane = 2; plane < 4; ++plane) {
            for (int layer = 0; layer < 2; ++layer) {
              for (float& number : plane_row(bench, sequence, plane, layer, p, 16)) number = std::nanf("");
            }
          }
        }
        const StepTokens step = run_slice(bench, sequence, {1, 0, 3, from}, draft);
        token_before = ids[static_cast<std::size_t>(anchor)];
        ids[static_cast<std::size_t>(anchor)] = step.sampled[0];
        EXPECT_EQ(step.proposed, trained(anchor, from)) << "anchor " << anchor;
        ids[static_cast<std::size_t>(anchor)] = token_before;
        bench.give_back(sequence);
      }
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  std::unique_ptr<files::TensorSource> golden =
      std::move(files::open_safetensors(vectors() / "dflash/decode.safetensors")).value();
  DraftFolders folders;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  std::vector<std::int64_t> ids;
  std::int64_t token_before = 0;
  at::Tensor features;
};

TEST_F(DraftTraining, FullLayersGuessAsInTraining) { compare(0); }

TEST_F(DraftTraining, SlidingLayersGuessAsInTraining) {
  slide({true, false}, 5);
  compare(0);
  slide({true, true}, 2);  // narrower than the block, which stays visible up to the row
  compare(0);
}

TEST_F(DraftTraining, BiasesAreAddedToContextAndBlock) {
  add_biases();
  slide({false, true}, 9);
  compare(0);
}

TEST_F(DraftTraining, B04MissingDraftContextIsMasked) {
  compare(9);
  slide({true, false}, 6);
  compare(13);
}

}  // namespace
}  // namespace levada::model
