// Paged attention, row by row, against its plain twin: types, group sizes, splits, float8 planes. Needs a GPU.
#include "kernels/cuda/attention.h"

#include <algorithm>

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/ref/ref_ops.h"

namespace levada::kernels::cuda {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, page_size;
};

// Rows that attend so many tokens each, on pages of their own in a shuffled order.
struct Rows {
  std::vector<std::int32_t> lengths, table_first, tables, first_row, ones, context;
  std::int32_t pages = 0;
  Rows(std::vector<std::int32_t> attended, int page_size, unsigned seed) : lengths(std::move(attended)) {
    for (const std::int32_t length : lengths) {
      first_row.push_back(static_cast<std::int32_t>(ones.size()));
      ones.push_back(1);
      context.push_back(length - 1);
      table_first.push_back(pages);
      pages += (length + page_size - 1) / page_size;
    }
    for (std::int32_t p = 0; p < pages; ++p) tables.push_back(p);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(seed));
  }
};

void equals_its_twin(const Shape& s, DType dtype, DType kv_dtype, std::vector<std::int32_t> lengths, KvScales scales) {
  SCOPED_TRACE(std::string(to_string(dtype)) + " over " + std::string(to_string(kv_dtype)) + ", heads " +
               std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " of " + std::to_string(s.head_dim));
  GpuTestDevice device;
  ThreadPool pool(1);
  RefOps ref(pool);
  const Rows rows(std::move(lengths), s.page_size, 7);
  const auto count = static_cast<std::int64_t>(rows.lengths.size());
  const std::int64_t h = s.heads, d = s.head_dim;
  auto attention = PagedAttention::create(device, s.heads, s.kv_heads, s.head_dim, 64);
  ASSERT_TRUE(attention.ok()) << attention.status().to_string();
  auto k = GpuTensor::random(1, kv_dtype, {rows.pages, s.page_size, s.kv_heads, d}),
       v = GpuTensor::random(2, kv_dtype, {rows.pages, s.page_size, s.kv_heads, d}),
       q = GpuTensor::random(3, dtype, {count, h, d}, 64), out = GpuTensor::unwritten(dtype, {count, h * d});
  auto device_lengths = GpuTensor::ints(rows.lengths), first = GpuTensor::ints(rows.table_first),
       tables = GpuTensor::ints(rows.tables);
  const AttentionRows where{device_lengths.view().as<const std::int32_t>(), first.view().as<const std::int32_t>(),
                            tables.view().as<const std::int32_t>()};
  expect_ok((*attention)->run(q, where, k, v, 0.11f, out, nullptr, scales));

  std::vector<float> from = q.floats(), keys = k.floats(), values = v.floats(), want(from.size());
  for (float& x : keys) x *= scales.k;
  for (float& x : values) x *= scales.v;
  const PagedBatch batch{rows.first_row, rows.ones, rows.context, rows.table_first, rows.tables, s.page_size};
  ref.paged_attention(host_view(from, {count, h, d}), batch, host_view(keys, {rows.pages, s.page_size, s.kv_heads, d}),
                      host_view(values, {rows.pages, s.page_size, s.kv_heads, d}), 0.11f,
                      host_view(want, {count, h, d}));
  expect_close(out.floats(), want, 2 * rounding(dtype), 0.5, "paged attention");
  EXPECT_TRUE(out.guards_hold());
}

// Rows that begin later, over planes whose tokens are wider than these heads.
TEST(CudaAttention, RowsBeginWhereTheyAreToldTo) {
  const std::vector<std::int32_t> lengths{1, 15, 16, 17, 700, 64, 1500, 3}, starts{0, 14, 3, 0, 512, 63, 1, 0};
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Shape& s : {Shape{9, 3, 64, 16}, {4, 2, 80, 4}}) {
      GpuTestDevice device;
      ThreadPool pool(1);
      RefOps ref(pool);
      const Rows rows(lengths, s.page_size, 7);
      const auto count = static_cast<std::int64_t>(lengths.size());
      const std::int64_t h = s.heads, d = s.head_dim, width = s.kv_heads * d, wide = width + 64;
      auto attention = PagedAttention::create(device, s.heads, s.kv_heads, s.head_dim, 64);
      ASSERT_TRUE(attention.ok()) << attention.status().to_string();
      auto k = GpuTensor::random(1, dtype, {rows.pages, s.page_size, wide}),
           v = GpuTensor::random(2, dtype, {rows.pages, s.page_size, wide}),
           q = GpuTensor::random(3, dtype, {count, h, d}), out = GpuTensor::unwritten(dtype, {count, h * d});
      auto ends = GpuTensor::ints(lengths), first = GpuTensor::ints(rows.table_first),
           tables = GpuTensor::ints(rows.tables), begins = GpuTensor::ints(starts);
      const auto heads = [&](const GpuTensor& plane) {
        TensorView view = TensorView::of(plane.view().data, dtype, {rows.pages, s.page_size, s.kv_heads, d},
                                         device::DeviceKind::kCuda);
        view.strides[0] = s.page_size * wide;
        view.strides[1] = wide;
        return view;
      };
      const AttentionRows where{ends.view().as<const std::int32_t>(), first.view().as<const std::int32_t>(),
                                tables.view().as<const std::int32_t>(), begins.view().as<const std::int32_t>()};
      expect_ok((*attention)->run(q, where, heads(k), heads(v), 0.11f, out, nullptr));

      std::vector<float> from = q.floats(), want(from.size());
      const auto packed = [&](GpuTensor& plane) {
        const std::vector<float> all = plane.floats();
        std::vector<float> own;
        for (std::size_t t = 0; t < all.size(); t += static_cast<std::size_t>(wide)) {
          own.insert(own.end(), all.begin() + static_cast<std::ptrdiff_t>(t),
                     all.begin() + static_cast<std::ptrdiff_t>(t) + width);
        }
        return own;
      };
      std::vector<float> keys = packed(k), values = packed(v);
      PagedBatch batch{rows.first_row, rows.ones, rows.context, rows.table_first, rows.tables, s.page_size};
      batch.first_key = starts;
      ref.paged_attention(
          host_view(from, {count, h, d}), batch, host_view(keys, {rows.pages, s.page_size, s.kv_heads, d}),
          host_view(values, {rows.pages, s.page_size, s.kv_heads, d}), 0.11f, host_view(want, {count, h, d}));
      expect_close(out.floats(), want, 2 * rounding(dtype), 0.5, "paged attention from a start");
      EXPECT_TRUE(out.guards_hold());
    }
  }
}

const std::vector<std::int32_t> kLengths{1, 15, 16, 17, 700, 64, 1500, 3};

TEST(CudaAttention, EqualsItsTwinForEveryShape) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const Shape& shape :
         {Shape{9, 3, 64, 16}, {8, 2, 128, 16}, {8, 1, 128, 32}, {2, 2, 64, 1}, {4, 2, 80, 16}, {6, 1, 64, 16}}) {
      equals_its_twin(shape, dtype, dtype, kLengths, {});
    }
  }
}

TEST(CudaAttention, EqualsItsTwinOverFloat8PlanesWithScales) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const Shape& shape : {Shape{9, 3, 64, 16}, {8, 2, 128, 16}, {8, 1, 128, 32}, {4, 2, 80, 16}}) {
      equals_its_twin(shape, dtype, DType::kF8E4M3, kLengths, {});
      equals_its_twin(shape, dtype, DType::kF8E4M3, {40}, {0.25f, 3.0f, {}});
    }
  }
}

TEST(CudaAttention, PlanesOfOtherTypesAndScalesWithoutFloat8AreRefused) {
  GpuTestDevice device;
  auto attention = PagedAttention::create(device, 2, 2, 64, 4);
  ASSERT_TRUE(attention.ok());
  auto q = GpuTensor::random(1, DType::kBF16, {1, 2, 64}), out = GpuTensor::unwritten(DType::kBF16, {1, 128}),
       same = GpuTensor::random(2, DType::kBF16, {1, 16, 2, 64}),
       other = GpuTensor::random(2, DType::kF16, {1, 16, 2, 64});
  EXPECT_EQ((*attention)->run(q, {}, other, other, 1, out, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((*attention)->run(q, {}, same, same, 1, out, nullptr, {2, 1, {}}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace levada::kernels::cuda
