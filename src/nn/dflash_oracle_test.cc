// The draft's training pass against the independent oracle (tests/vectors/dflash): every intermediate in the order of its
// computation, loss, gradients; in float32 and bfloat16, through our CPU kernels, libtorch's operators and the
// reference of the GPU's kernels.
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "nn/dflash_support_test.h"
#include "nn/fused_draft_ops.h"

namespace levada::nn {
namespace {

using namespace test;

struct Tolerance {
  double hidden, loss_relative, loss_absolute, gradient;
};
Tolerance tolerance_of(at::ScalarType type) {
  if (type == at::kBFloat16) return {6e-2, 0, 1e-2, 3e-2};
  return {1e-5, 1e-5, 0, 1e-5};
}

LossRule rule_of(const Golden& golden, const std::string& name) {
  LossRule rule;
  rule.gamma = golden.number("cfg.gamma");
  rule.alpha = golden.number("cfg.alpha");
  if (name == "dpace") rule.kind = LossKind::kDpace;
  if (name == "dpace_conf") rule.kind = LossKind::kDpaceConfidence;
  if (name == "dpace_value") rule.kind = LossKind::kDpaceContinuation;
  return rule;
}

std::unique_ptr<DraftOps> make_ops(const std::string& kernels) {
  if (kernels == "Cpu") return make_cpu_draft_ops();
  if (kernels == "Torch") return make_torch_draft_ops(at::kCPU);
  return make_fused_draft_ops(trainkernels::make_reference_kernels(), at::kCPU);
}

// Everything one case computes.
struct Replay {
  Replay(const std::string& name, const std::string& kernels, at::ScalarType type, std::int64_t chunk = 0)
      : golden(name),
        geometry(geometry_of(golden)),
        block(golden.integer("cfg.block")),
        ops(make_ops(kernels)),
        scratch(at::kCPU),
        weights_flat(flat_of(geometry, golden, "w.", type)),
        gradients_flat(at::zeros({draft_parameters(geometry)}, at::TensorOptions().dtype(at::kFloat))),
        weights(bind_draft(geometry, weights_flat)),
        draft(geometry, *ops, scratch),
        given(make_batch(geometry, golden.tensor("in.input_ids"), golden.tensor("in.target_features"),
                         golden.tensor("in.loss_mask"), golden.tensor("mid.anchors"), golden.tensor("mid.keep"), block,
                         golden.integer("cfg.mask_id"), type)) {
    const at::Tensor table = golden.tensor("t.embed_tokens.weight").to(type);
    head = golden.tensor("t.lm_head.weight").to(type);
    y = draft.forward(given.batch, weights, given.features, at::index_select(table, 0, given.batch.block_ids));
    DraftObjective objective(head, rule_of(golden, name), chunk, *ops, scratch);
    const at::Tensor dy = at::empty(y.sizes(), y.options());
    result = objective.run(given.labels, block, y, dy);
    den = name.starts_with("dpace") ? static_cast<double>(given.sequences.size()) : result.weight;
    draft.backward(given.batch, weights, bind_draft(geometry, gradients_flat), given.features, dy);
    gradients_flat.mul_(1 / den);
  }

  // Rows of kept blocks from a padded [B, N * n, ...] golden.
  at::Tensor kept(const std::string& name) const {
    const at::Tensor keep = golden.tensor("mid.keep").flatten().to(at::kBool);
    at::Tensor all = golden.tensor(name);
    all = all.reshape({keep.numel(), block, -1});
    return all.index({keep}).flatten(0, 1);
  }

  Golden golden;
  DraftGeometry geometry;
  std::int64_t block;
  std::unique_ptr<DraftOps> ops;
  Scratch scratch;
  at::Tensor weights_flat, gradients_flat;
  DraftTensors weights;
  DflashDraft draft;
  GoldenBatch given;
  at::Tensor head, y;
  ObjectiveResult result;
  double den = 0;
};

class DflashOracle : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string name() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return name().ends_with("_bf16") ? at::kBFloat16 : at::kFloat; }
  void check(const std::function<void()>& body) {
    const OneThread one;
    const Status status = guarded(name().c_str(), body);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
};

TEST_P(DflashOracle, InputsPositionsLabelsAndVisibilityAreExact) {
  check([&] {
    const Replay run(name(), std::get<1>(GetParam()), type());
    EXPECT_TRUE(run.given.batch.block_ids.equal(run.kept("mid.noise_ids").flatten()));
    const at::Tensor positions = run.kept("mid.q_positions").flatten(), labels = run.kept("mid.target_ids").flatten();
    const at::Tensor mask = run.kept("mid.weight_mask").flatten();
    for (std::int64_t r = 0; r < run.given.batch.rows(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      EXPECT_EQ(run.given.batch.anchors[at / static_cast<std::size_t>(run.block)] + r % run.block,
                positions[r].item<std::int64_t>());
      EXPECT_EQ(run.given.labels.labels[at], labels[r].item<std::int64_t>());
      EXPECT_EQ(run.given.labels.mask[at], mask[r].item<float>());
    }
  });
}

TEST_P(DflashOracle, EveryLayerSeesExactlyTheAllowedKeys) {
  check([&] {
    const Replay run(name(), std::get<1>(GetParam()), type());
    const at::Tensor anchors = run.golden.tensor("mid.anchors"), keep = run.golden.tensor("mid.keep");
    const std::int64_t tokens = run.golden.tensor("in.input_ids").size(1), blocks = anchors.size(1);
    for (std::int64_t window : run.geometry.windows) {
      const at::Tensor allow = run.golden.tensor(window > 0 ? "mid.allow_sliding" : "mid.allow_full").squeeze(1);
      for (std::int64_t b = 0; b < anchors.size(0); ++b) {
        for (std::int64_t r = 0; r < blocks * run.block; ++r) {
          const std::int64_t j = r / run.block, anchor = anchors[b][j].item<std::int64_t>();
          const bool exists = keep[b][j].item<std::int64_t>() != 0;
          const Visible seen = visible_keys(anchor, r % run.block, run.block, window);
          const std::vector<std::int64_t> line = row(allow[b], r);
          for (std::int64_t key = 0; key < tokens + blocks * run.block; ++key) {
            const std::int64_t slot = key - tokens - j * run.block;
            const bool ours = key < tokens ? key >= seen.begin && key < seen.end : slot >= 0 && slot < seen.own_end;
            ASSERT_EQ(exists && ours, line[static_cast<std::size_t>(key)] != 0) << b << " " << r << " " << key;
          }
        }
      }
    }
  });
}

TEST_P(DflashOracle, ContextKeysValuesLayersAndLogits) {
  check([&] {
    Replay run(name(), std::get<1>(GetParam()), type());
    const double limit = tolerance_of(type()).hidden;
    const at::Tensor context = run.golden.tensor("mid.context");
    const auto keys = run.draft.context_keys(run.given.batch, run.weights, 0);
    const at::Tensor golden_k = run.golden.tensor("mid.layer0.ctx_k"), golden_v = run.golden.tensor("mid.layer0.ctx_v");
    for (std::size_t p = 0; p < run.given.batch.parts.size(); ++p) {
      const DraftBatch::Part& part = run.given.batch.parts[p];
      const auto b = static_cast<std::int64_t>(p);
      EXPECT_LE(
          difference(run.draft.context().narrow(0, part.first_key, part.keys), context[b].narrow(0, 0, part.keys)),
          limit);
      EXPECT_LE(difference(keys.k.narrow(1, part.first_key, part.keys), golden_k[b].narrow(1, 0, part.keys)), limit);
      EXPECT_LE(difference(keys.v.narrow(1, part.first_key, part.keys), golden_v[b].narrow(1, 0, part.keys)), limit);
    }
    for (std::size_t layer = 0; layer < run.geometry.windows.size(); ++layer) {
      EXPECT_LE(difference(run.draft.layer_output(layer), run.kept("mid.layer" + std::to_string(layer) + ".out")),
                limit)
          << "layer " << layer;
    }
    EXPECT_LE(difference(run.y, run.kept("mid.final_hidden")), limit);
    EXPECT_LE(difference(at::matmul(run.y, run.head.t()), run.kept("mid.logits")), limit);
  });
}

TEST_P(DflashOracle, LossWeightsAndMetrics) {
  check([&] {
    const Replay run(name(), std::get<1>(GetParam()), type());
    const Tolerance limit = tolerance_of(type());
    const at::Tensor nll = run.kept("mid.nll").flatten(), weights = run.kept("mid.loss_weights").flatten();
    for (std::size_t r = 0; r < run.result.nll.size(); ++r) {
      if (run.given.labels.mask[r] <= 0) continue;  // we don't compute what weighs nothing
      const auto at = static_cast<std::int64_t>(r);
      EXPECT_NEAR(run.result.nll[r], nll[at].item<float>(), limit.hidden);
      EXPECT_NEAR(run.result.weights[r], weights[at].item<float>(), type() == at::kFloat ? 1e-5 : 2e-2);
    }
    const double loss = run.golden.number("out.loss"), num = run.golden.number("out.loss_num");
    EXPECT_NEAR(run.result.num / run.den, loss, loss * limit.loss_relative + limit.loss_absolute);
    EXPECT_NEAR(run.den, run.golden.number("out.loss_den"), 1e-4);
    EXPECT_NEAR(run.result.num, num, num * limit.loss_relative + limit.loss_absolute * run.den);
    EXPECT_EQ(run.result.slots, run.golden.number("mid.acc_den"));
    EXPECT_EQ(run.result.hits, run.golden.number("mid.acc_num"));
    EXPECT_NEAR(run.result.accepted_prefix / run.result.blocks + 1, run.golden.number("mid.mean_accept_len"), 1e-6);
  });
}

TEST_P(DflashOracle, Gradients) {
  check([&] {
    const Replay run(name(), std::get<1>(GetParam()), type());
    const double limit = tolerance_of(type()).gradient;
    each_tensor(run.geometry, run.gradients_flat, run.golden, "g.",
                [&](const std::string& tensor, const at::Tensor& ours, const at::Tensor& golden) {
                  EXPECT_LE(difference(ours, golden) / largest(golden), limit) << tensor;
                });
    Replay again(name(), std::get<1>(GetParam()), type());
    const double norm = std::sqrt(again.ops->sum_of_squares(again.gradients_flat));
    EXPECT_NEAR(norm / run.golden.number("out.grad_norm"), 1, type() == at::kFloat ? 1e-5 : 1e-2);
  });
}

TEST_P(DflashOracle, ChunksOfTheObjectiveChangeNothing) {
  check([&] {
    const Replay whole(name(), std::get<1>(GetParam()), type());
    for (std::int64_t chunk : {1, 3}) {
      const Replay chunked(name(), std::get<1>(GetParam()), type(), chunk);
      EXPECT_NEAR(chunked.result.num, whole.result.num, 1e-6 * whole.result.num);
      EXPECT_LE(difference(chunked.gradients_flat, whole.gradients_flat), 1e-5 * largest(whole.gradients_flat));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, DflashOracle,
                         testing::Combine(testing::Values("full", "sliding", "bias_nodecay", "dpace", "dpace_conf",
                                                          "dpace_value", "full_bf16"),
                                          testing::Values("Cpu", "Torch", "Fused")),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace levada::nn
