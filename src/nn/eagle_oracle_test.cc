// The EAGLE-3 draft's training pass against the independent oracle (tests/vectors/dflash/eagle3): states, logits, losses,
// metrics and gradients of three steps of training-time test, two sequences of which the oracle pads the second; through our
// CPU kernels and libtorch's operators.
#include <ATen/ops/matmul.h>

#include "nn/eagle_support_test.h"

namespace levada::nn {
namespace {

using namespace test;

struct EagleOracle : testing::TestWithParam<std::string> {
  EagleOracle() {
    geometry.hidden = 64;
    geometry.intermediate = 96;
    geometry.heads = 4;
    geometry.kv_heads = 2;
    geometry.head_dim = 32;
    geometry.features = golden.tensor("in.aux_hidden").size(2);
    geometry.vocabulary = golden.tensor("in.d2t").size(0);
    geometry.steps = golden.integer("cfg.ttt");
    const at::Tensor offsets = golden.tensor("in.d2t");
    for (std::int64_t i = 0; i < geometry.vocabulary; ++i) kept.push_back(i + offsets[i].item<std::int64_t>());
    if (GetParam() == "Torch") {
      made = make_torch_draft_ops(at::kCPU);
    } else {
      made = make_cpu_draft_ops();
    }
    ops = dynamic_cast<TileOps*>(made.get());
  }
  // What isn't padding, in float32; `mask_all`: every token is supervised, so that every row rolls out.
  std::vector<EagleSample> samples(bool mask_all = false) const {
    const at::Tensor ids = golden.tensor("in.input_ids"), real = golden.tensor("in.attention_mask");
    std::vector<EagleSample> out;
    for (std::int64_t b = 0; b < ids.size(0); ++b) {
      const auto tokens = static_cast<std::int64_t>(real[b].sum().item<float>());
      EagleSample sample;
      sample.ids = row(ids, b);
      sample.mask = mask_all ? std::vector<std::int64_t>(sample.ids.size(), 1) : row(golden.tensor("in.loss_mask"), b);
      sample.ids.resize(static_cast<std::size_t>(tokens));
      sample.mask.resize(static_cast<std::size_t>(tokens));
      sample.features = golden.tensor("in.aux_hidden")[b].narrow(0, 0, tokens);
      sample.last = golden.tensor("in.last_hidden")[b].narrow(0, 0, tokens);
      out.push_back(std::move(sample));
    }
    return out;
  }
  at::Tensor flat(at::ScalarType type = at::kFloat) const {
    const at::Tensor all = at::empty({eagle_parameters(geometry)}, at::TensorOptions().dtype(type));
    for (const NamedSlice& slice : eagle_slices(geometry)) {
      const at::Tensor value = golden.tensor("w." + slice.name);
      EXPECT_EQ(value.sizes(), at::IntArrayRef(slice.shape)) << slice.name;
      all.narrow(0, slice.first, slice.count).copy_(value.flatten());
    }
    return all;
  }
  EagleRun run(std::vector<EagleSample> given, std::int64_t chunk = 0, at::ScalarType type = at::kFloat) {
    return EagleRun(geometry, flat(type), std::move(given), golden.tensor("t.embed_tokens.weight"),
                    golden.tensor("t.lm_head.weight"), kept, *ops, chunk);
  }
  // The oracle divides by padded positions.
  double positions() const { return static_cast<double>(golden.tensor("in.input_ids").numel()); }
  void check(const std::function<void()>& body) {
    const OneThread one;
    const Status status = guarded("an EAGLE-3 rollout", body);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Golden golden{"eagle3"};
  EagleGeometry geometry;
  std::vector<std::int64_t> kept;
  std::unique_ptr<DraftOps> made;
  TileOps* ops = nullptr;
};

TEST_P(EagleOracle, StatesAndLogitsOfEveryStep) {
  check([&] {
    EagleRun all = run(samples(/*mask_all=*/true));
    const at::Tensor head = golden.tensor("w.lm_head.weight"), logits = at::matmul(all.y, head.t());
    for (std::int64_t step = 0; step < geometry.steps; ++step) {
      const std::string mid = "mid.step" + std::to_string(step);
      for (std::size_t b = 0; b < all.batch.parts.size(); ++b) {
        const EagleBatch::Part& part = all.batch.parts[b];
        ASSERT_EQ(part.rows, part.keys - 1) << "the last token has no teacher";
        const auto sequence = static_cast<std::int64_t>(b);
        auto golden_rows = [&](const char* what) {
          return golden.tensor(mid + what)[sequence].narrow(0, 0, part.rows);
        };
        EXPECT_LE(difference(all.draft.state_after(step).narrow(0, part.first_row, part.rows), golden_rows(".hidden")),
                  1e-5)
            << mid << " sequence " << b;
        const std::int64_t first = step * all.batch.row_count() + part.first_row;
        EXPECT_LE(difference(logits.narrow(0, first, part.rows), golden_rows(".logits")), 1e-5)
            << mid << " sequence " << b;
      }
    }
  });
}

TEST_P(EagleOracle, LossAndMetricsOfEveryStep) {
  check([&] {
    const EagleRun all = run(samples());
    const at::Tensor loss = golden.tensor("out.ploss"), overlap = golden.tensor("out.acceptance_rate");
    const at::Tensor hits = golden.tensor("out.acc");
    for (std::int64_t s = 0; s < geometry.steps; ++s) {
      const EagleStepSums& step = all.result.steps[static_cast<std::size_t>(s)];
      EXPECT_NEAR(step.loss / positions(), loss[s].item<float>(), 1e-6) << s;
      EXPECT_NEAR(step.overlap / step.counted, overlap[s].item<float>(), 1e-6) << s;
      EXPECT_NEAR(step.hits / step.rows, hits[s].item<float>(), 1e-7) << s;
    }
    EXPECT_NEAR(all.result.num / positions(), golden.number("out.loss"), 1e-6);
  });
}

TEST_P(EagleOracle, GradientsOfEveryTensor) {
  check([&] {
    for (std::int64_t chunk : {0, 1, 4}) {
      const EagleRun all = run(samples(), chunk);
      for (const NamedSlice& slice : eagle_slices(geometry)) {
        const at::Tensor want = golden.tensor("g." + slice.name);
        const at::Tensor ours = all.gradients.narrow(0, slice.first, slice.count).view(slice.shape).div(positions());
        EXPECT_LE(difference(ours, want) / largest(want), 2e-6) << slice.name << " chunk " << chunk;
      }
    }
  });
}

// As wide as DFlash's bfloat16 goldens allow; there is none for EAGLE-3, so it is held to the float32 oracle.
TEST_P(EagleOracle, Bfloat16IsTheOraclesRounded) {
  check([&] {
    const EagleRun all = run(samples(), 0, at::kBFloat16);
    EXPECT_NEAR(all.result.num / positions(), golden.number("out.loss"), 1e-2);
    for (const NamedSlice& slice : eagle_slices(geometry)) {
      const at::Tensor want = golden.tensor("g." + slice.name);
      const at::Tensor ours = all.gradients.narrow(0, slice.first, slice.count).view(slice.shape).div(positions());
      EXPECT_LE(difference(ours, want) / largest(want), 3e-2) << slice.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, EagleOracle, testing::Values("Cpu", "Torch"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levada::nn
