// The row launchers against their plain twins, on sizes that fit no block. Needs a GPU.
#include "kernels/cuda/rows.h"

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/ref/ref_rows.h"

namespace levada::kernels::cuda {
namespace {

struct CudaRowsTest : ::testing::TestWithParam<DType> {
  ThreadPool pool{1};
  RefOps ref{pool};
  DType type() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaRowsTest, ::testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& i) { return std::string(to_string(i.param)); });

TEST_P(CudaRowsTest, RmsNormEqualsItsTwin) {
  for (const std::int64_t rows : {1, 3, 130}) {
    for (const std::int64_t width : {8, 72, 576, 4096, 10240}) {
      auto x = GpuTensor::random(1, type(), {rows, width}, 8), weight = GpuTensor::random(2, DType::kF32, {width}),
           out = GpuTensor::unwritten(type(), {rows, width}, 16);
      std::vector<float> from = x.floats(), w = weight.floats(), want(from.size());
      ref.rms_norm(host_view(from, {rows, width}), host_view(w, {width}), 1e-5f, host_view(want, {rows, width}));
      expect_ok(rms_norm(x, weight, 1e-5f, out, nullptr));
      expect_close(out.floats(), want, rounding(type()), 0.01, "rms_norm");
      EXPECT_TRUE(out.guards_hold());
      expect_ok(rms_norm(x, weight, 1e-5f, x, nullptr));  // in place
      expect_close(x.floats(), want, rounding(type()), 0.01, "rms_norm in place");
    }
  }
}

TEST_P(CudaRowsTest, AddRmsNormLeavesTheSumAndItsNorm) {
  const std::int64_t rows = 5, width = 584;
  auto x = GpuTensor::random(1, type(), {rows, width}, 8), delta = GpuTensor::random(2, type(), {rows, width}),
       weight = GpuTensor::random(3, DType::kF32, {width}), out = GpuTensor::unwritten(type(), {rows, width});
  std::vector<float> sum = x.floats(), d = delta.floats(), w = weight.floats(), want(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += d[i];
  ref.rms_norm(host_view(sum, {rows, width}), host_view(w, {width}), 1e-6f, host_view(want, {rows, width}));
  expect_ok(add_rms_norm(x, delta, weight, 1e-6f, out, nullptr));
  expect_close(x.floats(), sum, rounding(type()), 0.01, "sum");
  expect_close(out.floats(), want, 2 * rounding(type()), 0.02, "norm of the sum");
  EXPECT_TRUE(x.guards_hold() && out.guards_hold());
}

TEST_P(CudaRowsTest, SiluMulEqualsItsTwin) {
  for (const std::int64_t rows : {1, 7, 70000}) {
    const std::int64_t width = rows > 100 ? 8 : 1544;
    auto gate_up = GpuTensor::random(1, type(), {rows, 2 * width}),
         out = GpuTensor::unwritten(type(), {rows, width}, 8);
    std::vector<float> from = gate_up.floats(), want(static_cast<std::size_t>(rows * width));
    ref.silu_mul(host_view(from, {rows, 2 * width}), host_view(want, {rows, width}));
    expect_ok(silu_mul(gate_up, out, nullptr));
    expect_close(out.floats(), want, rounding(type()), 0.01, "silu_mul");
    EXPECT_TRUE(out.guards_hold());
  }
}

TEST_P(CudaRowsTest, EmbedTakesRowsAndZerosForStrangers) {
  auto table = GpuTensor::random(1, type(), {50, 136}), ids = GpuTensor::ints({49, 0, 7, 50, -1, 7});
  std::vector<float> from = table.floats(), want;
  for (const int id : {49, 0, 7, 50, -1, 7}) {
    for (int c = 0; c < 136; ++c) want.push_back(id >= 0 && id < 50 ? from[static_cast<std::size_t>(id * 136 + c)] : 0);
  }
  for (const DType out_type : {type(), DType::kF32}) {
    auto out = GpuTensor::unwritten(out_type, {6, 136}, 8);
    expect_ok(embed(table, ids, out, nullptr));
    EXPECT_EQ(out.floats(), want);
    EXPECT_TRUE(out.guards_hold());
  }
}

TEST_P(CudaRowsTest, ConvertRoundsAndWidens) {
  for (const DType out_type : {DType::kBF16, DType::kF16, DType::kF32}) {
    auto x = GpuTensor::random(1, type(), {3, 301}, 1), out = GpuTensor::unwritten(out_type, {3, 301}, 2);
    expect_ok(convert(x, out, nullptr));
    expect_close(out.floats(), x.floats(), rounding(out_type), 1e-3, "convert");
    EXPECT_TRUE(out.guards_hold());
  }
}

struct RopeCase {
  int heads, kv_heads, head_dim;
  bool normed;
  std::int64_t rows;
};

void rope_append_equals_its_twin(RefOps& ref, DType type, DType kv_type, const RopeCase& c) {
  const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.head_dim, pages = c.rows / 4 + 2, positions = 50;
  auto qkv = GpuTensor::random(1, type, {c.rows, width}, 8);
  auto q_norm = GpuTensor::random(2, DType::kF32, {c.head_dim}),
       k_norm = GpuTensor::random(3, DType::kF32, {c.head_dim});
  auto cos_sin = GpuTensor::random(4, DType::kF32, {positions, c.head_dim});
  auto k_plane = GpuTensor::random(5, kv_type, {pages, 4, c.kv_heads, c.head_dim}),
       v_plane = GpuTensor::random(6, kv_type, {pages, 4, c.kv_heads, c.head_dim});
  std::vector<std::int32_t> at, slot;
  for (int r = 0; r < c.rows; ++r)
    at.push_back(r * 7 % 50), slot.push_back(r % 5 == 3 ? -1 : static_cast<int>(c.rows) - r);
  auto at_device = GpuTensor::ints(at), slot_device = GpuTensor::ints(slot);
  const float k_scale = kv_type == type ? 1.0f : 0.5f, v_scale = kv_type == type ? 1.0f : 0.25f;

  std::vector<float> rows = qkv.floats(), qn = q_norm.floats(), kn = k_norm.floats(), turns = cos_sin.floats(),
                     k = k_plane.floats(), v = v_plane.floats();
  for (float& x : k) x *= k_scale;
  for (float& x : v) x *= v_scale;
  const TensorView none{};
  ref_rope_append(
      ref,
      {host_view(rows, {c.rows, width}), c.heads, c.kv_heads, c.head_dim, c.normed ? host_view(qn, {c.head_dim}) : none,
       c.normed ? host_view(kn, {c.head_dim}) : none, 1e-6f, host_view(turns, {positions, c.head_dim}), at, slot,
       host_view(k, {pages, 4, c.kv_heads, c.head_dim}), host_view(v, {pages, 4, c.kv_heads, c.head_dim})});
  expect_ok(rope_append({qkv,
                         c.heads,
                         c.kv_heads,
                         c.head_dim,
                         c.normed ? q_norm.view() : none,
                         c.normed ? k_norm.view() : none,
                         1e-6f,
                         cos_sin,
                         at_device,
                         slot_device,
                         k_plane,
                         v_plane,
                         {k_scale, v_scale, {}}},
                        nullptr));
  expect_close(qkv.floats(), rows, rounding(type), 0.05, "rows");
  std::vector<float> k_got = k_plane.floats(), v_got = v_plane.floats();
  for (float& x : k_got) x *= k_scale;
  for (float& x : v_got) x *= v_scale;
  expect_close(k_got, k, rounding(kv_type), 0.05, "keys");
  expect_close(v_got, v, rounding(kv_type), 0.05, "values");
  EXPECT_TRUE(qkv.guards_hold() && k_plane.guards_hold() && v_plane.guards_hold());
}

TEST_P(CudaRowsTest, RopeAppendEqualsItsTwin) {
  for (const RopeCase& c : {RopeCase{9, 3, 64, false, 1}, RopeCase{32, 8, 128, true, 3}, RopeCase{2, 1, 256, true, 33},
                            RopeCase{3, 1, 4, false, 6}, RopeCase{4, 2, 80, true, 7}}) {
    for (const DType kv_type : {type(), DType::kF8E4M3}) rope_append_equals_its_twin(ref, type(), kv_type, c);
  }
}

TEST_P(CudaRowsTest, RefusesShapesThatDontFit) {
  auto x = GpuTensor::random(1, type(), {2, 64}), narrow = GpuTensor::random(1, type(), {2, 32}),
       weight = GpuTensor::random(1, DType::kF32, {64}), ids = GpuTensor::ints({0, 1, 2});
  EXPECT_EQ(rms_norm(x, weight, 1e-5f, narrow, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rms_norm(narrow, weight, 1e-5f, narrow, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(silu_mul(narrow, x, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(embed(x, ids, x, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(convert(x, narrow, nullptr).code(), StatusCode::kInvalidArgument);
  TensorView on_host = x.view();
  on_host.place = device::DeviceKind::kCpu;
  EXPECT_EQ(rms_norm(on_host, weight, 1e-5f, x, nullptr).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace levada::kernels::cuda
