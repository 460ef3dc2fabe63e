// Where drafts' blocks begin and what their rows are, and keys and values of several layers at once. Needs a GPU.
#include "kernels/cuda/draft_block.h"

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/cuda/rows.h"

namespace levada::kernels::cuda {
namespace {

std::vector<int> whole(GpuTensor& tensor) {
  const std::vector<float> floats = tensor.floats();
  return {floats.begin(), floats.end()};
}

// Three requests in blocks of four rows, pages of four tokens:
//   0: drafts 7 8 9 against samples 7 8 5 6: two hold, so that 5, at position 6 + 2, is the last; three guesses wanted
//   1: no drafts, sampled 3 at position 2; one guess wanted, from context on from position 1
//   2: padding
TEST(DraftBlock, BeginsAtTheLastTokenThatTheSamplesGive) {
  auto requests = GpuTensor::ints({0, 1, 3, 6, 0, 0, 4, /**/ 4, 0, 0, 2, 3, 1, 2, /**/ -1, 0, 0, 0, 0, 0, 0});
  auto samples = GpuTensor::ints({7, 8, 5, 6, 3}), ids = GpuTensor::ints({2, 7, 8, 9, 1}),
       tables = GpuTensor::ints({20, 21, 22, 30, 31});
  std::vector<std::unique_ptr<GpuTensor>> out;
  for (int i = 0; i < 9; ++i) {
    out.push_back(
        std::make_unique<GpuTensor>(DType::kI32, std::vector<std::int64_t>{12}, 0, [](std::int64_t) { return -7.0f; }));
  }
  const auto at = [&](std::size_t i) { return out[i]->view().as<std::int32_t>(); };
  expect_ok(begin_draft_blocks({.requests = reinterpret_cast<const BlockRequest*>(requests.view().data),
                                .count = 3,
                                .rows = 4,
                                .samples = samples.view().as<const std::int32_t>(),
                                .ids = ids.view().as<const std::int32_t>(),
                                .block_tables = tables.view().as<const std::int32_t>(),
                                .mask_id = 63,
                                .page_size = 4,
                                .window = 3,
                                .out = {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8)}},
                               nullptr));
  EXPECT_EQ(whole(*out[0]), (std::vector<int>{5, 63, 63, 63, 3, 63, 63, 63, 0, 63, 63, 63})) << "ids";
  EXPECT_EQ(whole(*out[1]), (std::vector<int>{8, 9, 10, 11, 2, 3, 0, 0, 0, 0, 0, 0})) << "positions";
  EXPECT_EQ(whole(*out[2]), (std::vector<int>{88, 89, 90, 91, 122, 123, -1, -1, -1, -1, -1, -1})) << "slots";
  EXPECT_EQ(whole(*out[3]), (std::vector<int>{0, 0, 0, 0, 3, 3, 3, 3, 0, 0, 0, 0})) << "tables";
  EXPECT_EQ(whole(*out[4]), (std::vector<int>{12, 12, 12, 12, 4, 4, 0, 0, 0, 0, 0, 0})) << "lengths";
  EXPECT_EQ(whole(*out[5]), (std::vector<int>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0})) << "starts";
  EXPECT_EQ(whole(*out[6]), (std::vector<int>{9, 10, 11, 12, 3, 4, 0, 0, 0, 0, 0, 0})) << "sliding lengths";
  EXPECT_EQ(whole(*out[7]), (std::vector<int>{6, 7, 8, 9, 1, 1, 0, 0, 0, 0, 0, 0})) << "sliding starts";
  EXPECT_EQ(whole(*out[8]), (std::vector<int>{1, 2, 3, 5, 6, 7, 9, 10, 11, -7, -7, -7})) << "guessing rows";
}

// [row: k0 v0 | k1 v1] into two layers of planes whose tokens are wider: as each layer by itself, beside a query head.
TEST(RopeAppend, SeveralLayersAtOnceAreEachLayerByItself) {
  constexpr std::int64_t kRows = 3, kHeads = 2, kDim = 16, kWide = 40, kPages = 2, kPage = 4, kKv = kHeads * kDim;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    auto rows = GpuTensor::random(1, dtype, {kRows, 2 * 2 * kKv});
    const std::vector<float> numbers = rows.floats();
    auto norms = GpuTensor::random(2, DType::kF32, {2 * kDim}), table = GpuTensor::random(3, DType::kF32, {8, kDim}),
         query_norm = GpuTensor::random(4, DType::kF32, {kDim});
    auto positions = GpuTensor::ints({0, 5, 2}), slots = GpuTensor::ints({6, -1, 1});
    const auto planes = [&](std::int64_t layers) {
      return GpuTensor::unwritten(dtype, {layers * kPages * kPage, kWide});
    };
    const auto heads = [&](const GpuTensor& plane) {
      TensorView view =
          TensorView::of(plane.view().data, dtype, {kPages, kPage, kHeads, kDim}, device::DeviceKind::kCuda);
      view.strides[0] = kPage * kWide;
      view.strides[1] = kWide;
      return view;
    };
    auto k = planes(2), v = planes(2);
    RopeAppend call{.qkv = rows,
                    .heads = 0,
                    .kv_heads = kHeads,
                    .head_dim = kDim,
                    .q_norm = {},
                    .k_norm = norms,
                    .eps = 1e-6f,
                    .cos_sin = table,
                    .positions = positions,
                    .slots = slots,
                    .k_plane = heads(k),
                    .v_plane = heads(v),
                    .scales = {},
                    .layers = 2};
    expect_ok(rope_append(call, nullptr));
    const std::vector<float> keys = k.floats(), values = v.floats();
    EXPECT_TRUE(k.guards_hold() && v.guards_hold());
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      const std::int64_t width = (1 + 2 * kHeads) * kDim;
      GpuTensor own(dtype, {kRows, width}, 0, [&](std::int64_t i) {
        const std::int64_t column = i % width - kDim;
        return column < 0 ? 1.0f : numbers[static_cast<std::size_t>(i / width * 4 * kKv + layer * 2 * kKv + column)];
      });
      auto own_k = planes(1), own_v = planes(1);
      RopeAppend alone = call;
      alone.qkv = own;
      alone.heads = 1;
      alone.layers = 1;
      alone.q_norm = query_norm;
      alone.k_norm.data = norms.view().as<float>() + layer * kDim;
      alone.k_norm.shape[0] = kDim;
      alone.k_plane = heads(own_k);
      alone.v_plane = heads(own_v);
      expect_ok(rope_append(alone, nullptr));
      const std::vector<float> want_k = own_k.floats(), want_v = own_v.floats();
      for (std::size_t i = 0; i < want_k.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(layer) * want_k.size() + i;
        EXPECT_TRUE(keys[at] == want_k[i] || (std::isnan(keys[at]) && std::isnan(want_k[i]))) << layer << ", key " << i;
        EXPECT_TRUE(values[at] == want_v[i] || (std::isnan(values[at]) && std::isnan(want_v[i])))
            << layer << ", value " << i;
      }
    }
  }
}

}  // namespace
}  // namespace levada::kernels::cuda
