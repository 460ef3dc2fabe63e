// The two backends compute the same layer: our kernels against libtorch's operators, both on the CPU in float32.
#include "nn/backend.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "nn/gqa_layer.h"
#include "nn/lm_head.h"
#include "nn/tensor.h"
#include "nn/torch_backend_test.h"

namespace levada::nn {
namespace {

constexpr std::int64_t kVocabulary = 50, kPositions = 64, kPages = 32, kPageSize = 4;
const GqaShape kShape{.hidden = 24, .heads = 6, .kv_heads = 2, .head_dim = 8, .intermediate = 40, .eps = 1e-5f};

at::Tensor random_tensor(std::initializer_list<std::int64_t> sizes, std::mt19937& random, float scale = 1) {
  at::Tensor tensor = at::empty(at::IntArrayRef(sizes.begin(), sizes.size()), at::TensorOptions().dtype(at::kFloat));
  std::normal_distribution<float> normal(0, scale);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data_ptr<float>()[i] = normal(random);
  return tensor;
}

// Random weights of one layer, the table before it and the head after it.
struct Toy {
  explicit Toy(bool qk_norm) {
    std::mt19937 random(3);
    auto weight = [&](std::int64_t out, std::int64_t in) { return random_tensor({out, in}, random, 0.2f); };
    const std::int64_t q = kShape.heads * kShape.head_dim, kv = kShape.kv_heads * kShape.head_dim;
    table = weight(kVocabulary, kShape.hidden);
    layer.input_norm = random_tensor({kShape.hidden}, random);
    layer.post_norm = random_tensor({kShape.hidden}, random);
    if (qk_norm) {
      layer.q_norm = random_tensor({kShape.head_dim}, random);
      layer.k_norm = random_tensor({kShape.head_dim}, random);
    }
    layer.qkv = {{weight(q, kShape.hidden), weight(kv, kShape.hidden), weight(kv, kShape.hidden)}};
    layer.o = {{weight(kShape.hidden, q)}};
    layer.gate_up = {{weight(2 * kShape.intermediate, kShape.hidden)}};
    layer.down = {{weight(kShape.hidden, kShape.intermediate)}};
    cos_sin = random_tensor({kPositions, kShape.head_dim}, random);
  }
  GqaLayer layer;
  at::Tensor table, cos_sin;
};

// A batch over paged slices; every slice has pages of its own, in reverse order.
struct Batch {
  explicit Batch(std::vector<std::pair<std::int32_t, std::int32_t>> context_and_rows) {
    std::mt19937 random(4);
    std::int32_t page = kPages - 1;
    for (auto [before, count] : context_and_rows) {
      first_row.push_back(static_cast<std::int32_t>(ids.size()));
      rows.push_back(count);
      context.push_back(before);
      table_first.push_back(static_cast<std::int32_t>(tables.size()));
      for (std::int64_t p = 0; p < before + count; p += kPageSize) tables.push_back(page--);
      for (std::int32_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<std::int32_t>(random() % kVocabulary));
        positions.push_back(before + i);
      }
    }
  }
  StepShape shape() const { return {{first_row, rows, context, table_first, tables, kPageSize}, ids, positions}; }
  std::vector<std::int32_t> first_row, rows, context, table_first, tables, ids, positions;
};

// Embedding, one layer and the head through one backend; returns the logits of every row.
at::Tensor run(Backend& backend, const Toy& toy, const Batch& batch) {
  std::mt19937 random(5);
  const at::Tensor k_plane = random_tensor({kPages, kPageSize, kShape.kv_heads, kShape.head_dim}, random);
  const at::Tensor v_plane = random_tensor({kPages, kPageSize, kShape.kv_heads, kShape.head_dim}, random);
  // Pages nobody owns hold NaN: a padded read of one would show.
  for (std::int64_t page = 0; page < kPages; ++page) {
    if (std::find(batch.tables.begin(), batch.tables.end(), page) != batch.tables.end()) continue;
    k_plane.select(0, page).fill_(NAN);
    v_plane.select(0, page).fill_(NAN);
  }
  GqaWorkspace workspace(kShape, backend);
  workspace.resize(static_cast<std::int64_t>(batch.ids.size()));
  const auto inputs = backend.prepare(batch.shape(), toy.cos_sin);
  backend.embed(*inputs, Projection{{toy.table}}, workspace.hidden);
  run_gqa_layer(backend, kShape, toy.layer, *inputs, k_plane, v_plane, workspace);
  std::vector<std::int32_t> rows(batch.ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  LmHead head(toy.layer.input_norm, kShape.eps, Projection{{toy.table}});
  return head.logits(backend, workspace.hidden, rows).clone();
}

void expect_backends_agree(bool qk_norm, const Batch& batch) {
  kernels::ThreadPool pool(2);
  const auto ops = kernels::make_cpu_ops(pool);
  const auto ours = make_cpu_backend(*ops), torch = make_torch_backend(at::kCPU, at::kFloat);
  const Toy toy(qk_norm);
  at::Tensor difference;
  const Status status =
      guarded("comparing", [&] { difference = run(*ours, toy, batch).sub(run(*torch, toy, batch)).abs().max(); });
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_LT(difference.item<float>(), 1e-4f);
}

TEST(Backends, AgreeOnAWholePrefill) { expect_backends_agree(false, Batch({{0, 13}})); }
TEST(Backends, AgreeOnALaterChunk) { expect_backends_agree(false, Batch({{6, 11}})); }
TEST(Backends, AgreeOnDecodeRowsOfDifferentLengths) { expect_backends_agree(false, Batch({{0, 1}, {7, 1}, {21, 1}})); }
TEST(Backends, AgreeOnAMixedBatch) { expect_backends_agree(false, Batch({{9, 1}, {0, 5}, {12, 1}, {4, 7}})); }
TEST(Backends, AgreeWithQueryAndKeyNorms) { expect_backends_agree(true, Batch({{9, 1}, {0, 5}, {12, 1}, {4, 7}})); }

TEST(Tensors, AViewAndItsTensorAreTheSameWindow) {
  std::vector<float> memory(24);
  device::TensorView view = device::TensorView::of(memory.data(), DType::kF32, {2, 3, 4});
  view.shape[1] = 2;  // strided rows
  const at::Tensor tensor = wrap(view);
  EXPECT_EQ(tensor.stride(0), 12);
  EXPECT_EQ(nn::view(tensor).data, memory.data());
  EXPECT_EQ(nn::view(tensor).shape, view.shape);
  EXPECT_EQ(nn::view(tensor).strides, view.strides);
}

TEST(Guarded, TorchExceptionsBecomeStatuses) {
  const at::Tensor tensor = at::empty({2, 2}, at::TensorOptions().dtype(at::kFloat));
  const Status wrong = guarded("testing", [&] { (void)tensor.view({3}); });
  EXPECT_EQ(wrong.code(), StatusCode::kInternal);
  EXPECT_EQ(wrong.message().rfind("testing: ", 0), 0u) << wrong.message();
  EXPECT_EQ(wrong.message().find('\n'), std::string::npos);
  EXPECT_EQ(guarded("testing", [] { throw std::bad_alloc(); }).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(guarded("testing", [] {}).ok());
}

TEST(TorchCuda, IsUnavailableWithAReasonOrLoads) {
  const Status status = load_torch_cuda();
  if (status.ok()) return;  // a machine with torch's CUDA libraries
  EXPECT_FALSE(status.message().empty());
}

}  // namespace
}  // namespace levada::nn
