// What a draft may and may not see, by perturbation, and that training computes what serving does.
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>

#include <random>

#include "nn/dflash_support_test.h"
#include "nn/fused_draft_ops.h"

namespace levada::nn {
namespace {

using namespace test;

constexpr std::int64_t kBlock = 4, kVocabulary = 50, kMask = 49, kTokens = 30;

at::Tensor random_tensor(at::IntArrayRef sizes, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  const at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data_ptr<float>()[i] = normal(random);
  return tensor;
}

// A draft with a sliding and a full layer over one sample with overlapping blocks.
struct Toy {
  Toy() {
    geometry.hidden = 24;
    geometry.intermediate = 40;
    geometry.layers = 2;
    geometry.heads = 6;
    geometry.kv_heads = 2;
    geometry.head_dim = 8;
    geometry.features = 48;
    geometry.windows = {5, 0};
    weights_flat = random_tensor({draft_parameters(geometry)}, 1, 0.2f);
    table = random_tensor({kVocabulary, geometry.hidden}, 2, 1);
    features = random_tensor({kTokens, geometry.features}, 3, 1);
    std::mt19937 random(4);
    for (std::int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<std::int64_t>(random() % (kVocabulary - 1)));
  }
  // Output of every block: [blocks, kBlock, hidden].
  at::Tensor run() const {
    Scratch scratch(at::kCPU);
    const auto ops = make_cpu_draft_ops();
    DflashDraft draft(geometry, *ops, scratch);
    DraftSequence sequence;
    sequence.anchors = anchors;
    sequence.input_ids = ids;
    const std::vector<DraftSequence> one{sequence};
    const DraftBatch batch = make_draft_batch(geometry, one, kBlock, kMask, at::kCPU);
    const at::Tensor y =
        draft.forward(batch, bind_draft(geometry, weights_flat), features.narrow(0, 0, sequence.context()),
                      at::index_select(table, 0, batch.block_ids));
    return y.clone().view({static_cast<std::int64_t>(anchors.size()), kBlock, geometry.hidden});
  }
  DraftGeometry geometry;
  at::Tensor weights_flat, table, features;
  std::vector<std::int64_t> ids, anchors{3, 8, 9, 10, 17, 25};
};

void checked(const std::function<void()>& body) {
  const OneThread one;
  const Status status = guarded("a property", body);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

TEST(DflashLeak, FeaturesFromTheAnchorOnChangeNoBitAndTheOneBeforeDoes) {
  checked([] {
    Toy toy;
    const at::Tensor before = toy.run();
    for (std::size_t j = 0; j < toy.anchors.size(); ++j) {
      const std::int64_t anchor = toy.anchors[j];
      Toy later, last_seen;
      later.features.narrow(0, anchor, kTokens - anchor).add_(3);
      last_seen.features.narrow(0, anchor - 1, 1).add_(3);
      for (std::size_t i = 0; i <= j; ++i) {
        EXPECT_TRUE(later.run()[static_cast<std::int64_t>(i)].equal(before[static_cast<std::int64_t>(i)]))
            << "block " << i << " sees features at or after " << anchor;
      }
      EXPECT_FALSE(last_seen.run()[static_cast<std::int64_t>(j)].equal(before[static_cast<std::int64_t>(j)]));
    }
  });
}

TEST(DflashLeak, TokensOutsideTheAnchorChangeNoBit) {
  checked([] {
    const Toy toy;
    const at::Tensor before = toy.run();
    for (std::size_t j = 0; j < toy.anchors.size(); ++j) {
      Toy other;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        if (t != toy.anchors[j])
          other.ids[static_cast<std::size_t>(t)] = (other.ids[static_cast<std::size_t>(t)] + 7) % 49;
      }
      const auto block = static_cast<std::int64_t>(j);
      EXPECT_TRUE(other.run()[block].equal(before[block])) << "also those of overlapping blocks' anchors";
      Toy own;
      own.ids[static_cast<std::size_t>(toy.anchors[j])] = (own.ids[static_cast<std::size_t>(toy.anchors[j])] + 7) % 49;
      EXPECT_FALSE(own.run()[block].equal(before[block]));
    }
  });
}

TEST(DflashLeak, ABlockIsTheSameAloneAndAmongOverlappingOnes) {
  checked([] {
    const Toy toy;
    const at::Tensor together = toy.run();
    for (std::size_t j = 0; j < toy.anchors.size(); ++j) {
      Toy alone;
      alone.anchors = {toy.anchors[j]};
      EXPECT_LE(difference(alone.run()[0], together[static_cast<std::int64_t>(j)]), 1e-5);
    }
  });
}

TEST(DflashLeak, SlidingWindowForgetsFeaturesBeforeIt) {
  EXPECT_EQ(visible_keys(10, 0, 4, 5).begin, 6);
  EXPECT_EQ(visible_keys(10, 3, 4, 5).begin, 9);
  EXPECT_EQ(visible_keys(10, 3, 4, 2).begin, 10) << "a window shorter than the block sees no context at its end";
  EXPECT_EQ(visible_keys(10, 3, 4, 2).end, 10);
  EXPECT_EQ(visible_keys(2, 0, 4, 100).begin, 0);
  EXPECT_EQ(visible_keys(10, 1, 4, 5).own_end, 2) << "causal within the block";
  EXPECT_EQ(visible_keys(10, 1, 4, 0).own_end, 4);
  EXPECT_EQ(visible_keys(10, 1, 4, 0).end, 10) << "the anchor's own feature is hidden";
  checked([] {
    Toy toy;
    toy.geometry.windows = {5, 5};
    const at::Tensor before = toy.run();
    toy.features.narrow(0, 0, 13).add_(3);  // block at 17 sees 13 and later
    EXPECT_TRUE(toy.run()[4].equal(before[4]));
    EXPECT_FALSE(toy.run()[3].equal(before[3]));
  });
}

TEST(DflashAttention, ManyTilesEqualOne) {
  checked([] {
    // Long enough that scores need several tiles: every block again alone.
    Toy toy;
    toy.features = random_tensor({3000, toy.geometry.features}, 5, 1);
    toy.ids.assign(3000, 1);
    toy.anchors.clear();
    for (std::int64_t a = 2000; a < 2990; a += 30) toy.anchors.push_back(a);
    const at::Tensor together = toy.run();
    for (std::size_t j : {std::size_t{0}, std::size_t{15}, std::size_t{32}}) {
      Toy alone = toy;
      alone.anchors = {toy.anchors[j]};
      EXPECT_LE(difference(alone.run()[0], together[static_cast<std::int64_t>(j)]), 1e-5);
    }
  });
}

// A block at anchor P in the training pass equals the oracle's cached draft call with P committed tokens.
TEST(DflashServing, TrainingAtAnAnchorEqualsTheCachedDraftCall) {
  checked([] {
    const Golden golden("decode");
    const DraftGeometry geometry = geometry_of(golden);
    const std::int64_t block = golden.integer("cfg.block"), start = row(golden.tensor("out.starts").unsqueeze(0), 0)[3];
    const std::vector<std::int64_t> ids = row(golden.tensor("out.sequence"), 0);
    const at::Tensor features = golden.tensor("mid.step3.context_features")[0];
    ASSERT_EQ(features.size(0), start);
    DraftSequence sequence;
    sequence.anchors = {start};
    sequence.input_ids = ids;
    const std::vector<DraftSequence> one{sequence};
    const DraftBatch batch = make_draft_batch(geometry, one, block, golden.integer("cfg.mask_id"), at::kCPU);
    Scratch scratch(at::kCPU);
    const auto ops = make_cpu_draft_ops();
    DflashDraft draft(geometry, *ops, scratch);
    const at::Tensor flat = flat_of(geometry, golden, "w.", at::kFloat);
    const DraftTensors weights = bind_draft(geometry, flat);
    const at::Tensor y = draft.forward(batch, weights, features,
                                       at::index_select(golden.tensor("t.embed_tokens.weight"), 0, batch.block_ids));
    const at::Tensor logits = at::matmul(y, golden.tensor("t.lm_head.weight").t()).narrow(0, 1, block - 1);
    EXPECT_LE(difference(logits, golden.tensor("mid.step3.draft_logits")), 1e-4);
    EXPECT_TRUE(logits.argmax(1).equal(golden.tensor("out.blocks")[3].narrow(0, 1, block - 1)));
    for (std::size_t layer = 0; layer < geometry.windows.size(); ++layer) {
      const auto keys = draft.context_keys(batch, weights, layer);
      const std::string name = "mid.step3.layer" + std::to_string(layer);
      EXPECT_LE(difference(keys.k, golden.tensor(name + ".ctx_k")[0]), 1e-5);
      EXPECT_LE(difference(keys.v, golden.tensor(name + ".ctx_v")[0]), 1e-5);
    }
  });
}

TEST(FusedDraftOps, RefuseShapesTheKernelsDontTake) {
  const auto ops = make_fused_draft_ops(trainkernels::make_reference_kernels(), at::kCPU);
  Scratch scratch(at::kCPU);
  auto refusal = [&](std::int64_t hidden, std::int64_t head_dim) {
    DraftGeometry geometry;
    geometry.hidden = hidden;
    geometry.head_dim = head_dim;
    return guarded("making attention", [&] { ops->make_attention(geometry, scratch); }).to_string();
  };
  EXPECT_NE(refusal(576, 12).find("head_dim must be a multiple of 8 and at most 256"), std::string::npos);
  EXPECT_NE(refusal(576, 264).find("head_dim"), std::string::npos);
  EXPECT_NE(refusal(577, 64).find("hidden_size must be even and at most 8192"), std::string::npos);
  EXPECT_NE(refusal(8194, 64).find("hidden_size"), std::string::npos);
}

}  // namespace
}  // namespace levada::nn
