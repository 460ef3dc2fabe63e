// What an EAGLE-3 rollout may and may not see, that samples don't touch each other, and that gradients are the loss's slopes.
#include <random>

#include "nn/eagle_support_test.h"

namespace levada::nn {
namespace {

using namespace test;

at::Tensor normals(at::IntArrayRef sizes, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  const at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data_ptr<float>()[i] = normal(random);
  return tensor;
}

// A small draft, four steps, that knows every third token of its target.
struct EagleToy {
  explicit EagleToy(std::int64_t tokens = 20) {
    geometry.hidden = 16;
    geometry.intermediate = 24;
    geometry.heads = 4;
    geometry.kv_heads = 2;
    geometry.head_dim = 8;
    geometry.features = 48;
    geometry.vocabulary = 20;
    geometry.steps = 4;
    flat = normals({eagle_parameters(geometry)}, 1, 0.3f);
    table = normals({60, geometry.hidden}, 2, 1);
    head = normals({60, geometry.hidden}, 3, 0.7f);
    for (std::int64_t id = 0; id < 60; id += 3) kept.push_back(id);
    sample = make_sample(tokens, 4);
  }
  EagleSample make_sample(std::int64_t tokens, unsigned seed) const {
    std::mt19937 random(seed);
    EagleSample out;
    for (std::int64_t t = 0; t < tokens; ++t) {
      out.ids.push_back(static_cast<std::int64_t>(random() % 60));
      out.mask.push_back(t >= tokens / 3 && t != tokens / 2 ? 1 : 0);  // a prompt, an answer with a hole
    }
    out.features = normals({tokens, geometry.features}, seed + 1, 1);
    out.last = normals({tokens, geometry.hidden}, seed + 2, 1);
    return out;
  }
  EagleRun run(const std::vector<EagleSample>& samples, std::int64_t chunk = 0) const {
    const auto ops = make_cpu_draft_ops();
    return EagleRun(geometry, flat, samples, table, head, kept, *dynamic_cast<TileOps*>(ops.get()), chunk);
  }
  EagleGeometry geometry;
  at::Tensor flat, table, head;
  std::vector<std::int64_t> kept;
  EagleSample sample;
};

void verified(const std::function<void()>& body) {
  const OneThread one;
  const Status status = guarded("a property", body);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

// Row t of step s knows the tokens up to t + s + 1 and the features up to t, and nothing behind them.
TEST(EagleLeak, NothingBehindARowsOwnRolloutReachesIt) {
  verified([] {
    EagleToy toy;
    const EagleRun before = toy.run({toy.sample});
    const std::int64_t row = 5, token = before.batch.row_keys[5];
    EagleSample other = toy.sample;
    other.features = other.features.clone();
    other.features.narrow(0, token + 1, other.features.size(0) - token - 1).neg_();
    for (std::size_t t = static_cast<std::size_t>(token + toy.geometry.steps + 1); t < other.ids.size(); ++t) {
      other.ids[t] = (other.ids[t] + 7) % 60;
    }
    const EagleRun after = toy.run({other});
    for (std::int64_t step = 0; step < toy.geometry.steps; ++step) {
      const at::Tensor was = before.draft.state_after(step), is = after.draft.state_after(step);
      EXPECT_TRUE(is.narrow(0, 0, row + 1).equal(was.narrow(0, 0, row + 1))) << "step " << step;
      EXPECT_GT(difference(is.narrow(0, row + 1, 1), was.narrow(0, row + 1, 1)), 1e-3) << "it is no constant";
    }
  });
}

TEST(EagleLeak, ASampleIsTheSameAloneAndAmongOthers) {
  verified([] {
    const EagleToy toy;
    const EagleSample second = toy.make_sample(31, 9);
    const EagleRun both = toy.run({toy.sample, second}), first = toy.run({toy.sample}), last = toy.run({second});
    EXPECT_NEAR(both.result.num, first.result.num + last.result.num, 1e-4);
    for (std::size_t s = 0; s < both.result.steps.size(); ++s) {
      EXPECT_EQ(both.result.steps[s].counted, first.result.steps[s].counted + last.result.steps[s].counted);
      EXPECT_EQ(both.result.steps[s].rows, first.result.steps[s].rows + last.result.steps[s].rows);
    }
    EXPECT_LE(difference(both.gradients, first.gradients.add(last.gradients)), 1e-5 * largest(both.gradients));
  });
}

TEST(EagleLeak, APromptCostsNoRollouts) {
  verified([] {
    EagleToy toy;
    const EagleRun some = toy.run({toy.sample});
    EXPECT_EQ(some.batch.keys(), 20);
    // Supervised from 6 on: the first row whose four steps meet it is 3, and the last token has no teacher.
    EXPECT_EQ(some.batch.row_keys.front(), 3);
    EXPECT_EQ(some.batch.row_keys.back(), 18);
    EXPECT_EQ(some.batch.teachers.front(), 7);
    EXPECT_EQ(some.batch.teachers.back(), 19);
    toy.sample.mask.assign(20, 0);
    const EagleRun none = toy.run({toy.sample});
    EXPECT_EQ(none.batch.row_count(), 0);
    EXPECT_EQ(none.result.num, 0);
    EXPECT_EQ(largest(none.gradients), 0);
  });
}

TEST(EagleAttention, ManyTilesEqualOne) {
  verified([] {
    // Long enough that scores need several tiles; the end of the sequence alone needs fewer.
    EagleToy toy(1400);
    EagleSample end = toy.sample;
    std::fill(end.mask.begin(), end.mask.begin() + 1380, 0);
    const EagleRun all = toy.run({toy.sample}, 64), few = toy.run({end});
    for (std::int64_t step = 0; step < toy.geometry.steps; ++step) {
      const at::Tensor state = few.draft.state_after(step);
      const at::Tensor same =
          all.draft.state_after(step).narrow(0, all.batch.row_count() - state.size(0), state.size(0));
      EXPECT_LE(difference(state, same), 1e-5);
    }
  });
}

// In the direction of each tensor's gradient, where the slope is its norm: a central difference of the loss.
TEST(EagleGradient, IsTheSlopeOfTheLossInEveryTensor) {
  verified([] {
    const EagleToy toy;
    const EagleRun here = toy.run({toy.sample});
    for (const NamedSlice& slice : eagle_slices(toy.geometry)) {
      const at::Tensor gradient = here.gradients.narrow(0, slice.first, slice.count);
      const double norm = gradient.norm().item<double>();
      ASSERT_GT(norm, 0) << slice.name;
      auto loss_at = [&](double step) {
        EagleToy moved = toy;
        moved.flat = toy.flat.clone();
        moved.flat.narrow(0, slice.first, slice.count).add_(gradient, step / norm);
        return moved.run({toy.sample}).result.num;
      };
      constexpr double kStep = 5e-3;
      EXPECT_NEAR((loss_at(kStep) - loss_at(-kStep)) / (2 * kStep) / norm, 1, 5e-3) << slice.name;
    }
  });
}

}  // namespace
}  // namespace levada::nn
