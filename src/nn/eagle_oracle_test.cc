// The EAGLE-3 draft's rollouts against the independent oracle (tests/vectors/dflash/eagle3): states and logits of three
// steps of training-time test, two sequences, the second with padding.
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros_like.h>

#include "nn/dflash_support_test.h"
#include "nn/eagle_draft.h"

namespace levada::nn {
namespace {

using namespace test;

struct EagleOracle : testing::Test {
  EagleTensors tensors() const {
    const auto of = [&](const std::string& name) { return golden.tensor("w." + name); };
    const std::string m = "midlayer.", a = m + "self_attn.", f = m + "mlp.";
    return {of("fc.weight"),
            of("norm.weight"),
            of("lm_head.weight"),
            of(m + "input_layernorm.weight"),
            of(m + "hidden_norm.weight"),
            of(m + "post_attention_layernorm.weight"),
            of(a + "q_proj.weight"),
            of(a + "k_proj.weight"),
            of(a + "v_proj.weight"),
            of(a + "o_proj.weight"),
            of(f + "gate_proj.weight"),
            of(f + "up_proj.weight"),
            of(f + "down_proj.weight")};
  }
  // Calls check(step, sequence, what) for every step of every sequence, `features` and `ids` [B, ..] going in.
  void roll(const at::Tensor& features, const at::Tensor& all_ids,
            const std::function<void(std::int64_t, std::int64_t, const EagleDraft::Step&)>& check) {
    const OneThread one;
    const Status status = guarded("rolling out", [&] {
      const at::Tensor table = golden.tensor("t.embed_tokens.weight"), mask = golden.tensor("in.attention_mask");
      EagleDraft draft({.heads = 4, .kv_heads = 2, .head_dim = 32}, tensors());
      for (std::int64_t b = 0; b < features.size(0); ++b) {
        const auto count = mask[b].sum().item<float>();
        at::Tensor ids = all_ids[b], hidden = draft.start(features[b]);
        for (std::int64_t s = 0; s < golden.integer("cfg.ttt"); ++s) {
          ids = shifted(ids);
          const EagleDraft::Step step =
              draft.step(at::index_select(table, 0, ids), hidden, static_cast<std::int64_t>(count));
          check(s, b, step);
          hidden = step.hidden;
        }
      }
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  static at::Tensor shifted(const at::Tensor& ids) {
    const at::Tensor out = at::zeros_like(ids);
    out.narrow(0, 0, ids.size(0) - 1).copy_(ids.narrow(0, 1, ids.size(0) - 1));
    return out;
  }
  Golden golden{"eagle3"};
};

TEST_F(EagleOracle, StatesAndLogitsOfEveryStepAreTheOracles) {
  roll(golden.tensor("in.aux_hidden"), golden.tensor("in.input_ids"),
       [&](std::int64_t s, std::int64_t b, const EagleDraft::Step& step) {
         const std::string mid = "mid.step" + std::to_string(s);
         EXPECT_LE(difference(step.hidden, golden.tensor(mid + ".hidden")[b]), 1e-5) << mid << " sequence " << b;
         EXPECT_LE(difference(step.logits, golden.tensor(mid + ".logits")[b]), 1e-5) << mid << " sequence " << b;
       });
}

// Row t of step s knows the tokens up to t + s + 1 and the features up to t, and nothing behind them.
TEST_F(EagleOracle, NothingBehindARowsOwnRolloutReachesIt) {
  constexpr std::int64_t kRow = 7;
  const at::Tensor features = golden.tensor("in.aux_hidden").clone(), ids = golden.tensor("in.input_ids").clone();
  features.narrow(1, kRow + 1, features.size(1) - kRow - 1).neg_();
  ids.narrow(1, kRow + 4, ids.size(1) - kRow - 4).fill_(3);
  roll(features, ids, [&](std::int64_t s, std::int64_t b, const EagleDraft::Step& step) {
    const at::Tensor want = golden.tensor("mid.step" + std::to_string(s) + ".logits")[b];
    EXPECT_LE(difference(step.logits.narrow(0, 0, kRow + 1), want.narrow(0, 0, kRow + 1)), 1e-5) << s;
    EXPECT_GT(difference(step.logits.narrow(0, kRow + 1, 1), want.narrow(0, kRow + 1, 1)), 1e-3) << "it is no constant";
  });
}

}  // namespace
}  // namespace levada::nn
