// Float8 KV with scales, written and attended: by page and for all pages, against the plain twins. Needs a GPU.
#include "kernels/cuda/kv_scales.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/expand.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/gpu_tensors.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/pages.h"
#include "kernels/cuda/rows.h"
#include "kernels/ref/ref_rows.h"

namespace levada::kernels::cuda {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, page_size;
  std::int64_t width() const { return std::int64_t{heads + 2 * kv_heads} * head_dim; }
};

// A prompt of so many tokens on pages in a shuffled order, its q, k and v before the rotation, and a float8 pool.
class Prompt {
 public:
  Prompt(const Shape& shape, DType dtype, std::int64_t tokens, unsigned seed, float deviation = 1)
      : shape(shape),
        dtype(dtype),
        deviation(deviation),
        tokens(tokens),
        pages((tokens + shape.page_size - 1) / shape.page_size),
        rows(GpuTensor::random(seed, dtype, {tokens, shape.width()}, 8, deviation).floats()),
        table_(static_cast<std::size_t>(pages)),
        norm_(GpuTensor::random(seed + 1, DType::kF32, {shape.head_dim}, 0, 0.1f, deviation)),
        cos_sin_(GpuTensor::random(seed + 2, DType::kF32, {tokens, shape.head_dim})),
        k(DType::kF8E4M3, plane_shape(), 0, [](std::int64_t) { return 0.0f; }),
        v(DType::kF8E4M3, plane_shape(), 0, [](std::int64_t) { return 0.0f; }),
        page_scales(GpuTensor::unwritten(DType::kF32, {pages, kPageScales})) {
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(seed));
  }
  std::vector<std::int64_t> plane_shape() const { return {pages, shape.page_size, shape.kv_heads, shape.head_dim}; }
  std::int32_t slot(std::int64_t token) const {
    return table_[static_cast<std::size_t>(token / shape.page_size)] * shape.page_size +
           static_cast<std::int32_t>(token % shape.page_size);
  }
  // Appends these tokens, in this order, in one launch.
  void append(const std::vector<std::int32_t>& which, const KvScales& scales) {
    const auto count = static_cast<std::int64_t>(which.size());
    GpuTensor qkv(dtype, {count, shape.width()}, 8, [&](std::int64_t i) {
      const auto token = static_cast<std::int64_t>(which[static_cast<std::size_t>(i / shape.width())]);
      return rows[static_cast<std::size_t>(token * shape.width() + i % shape.width())];
    });
    std::vector<std::int32_t> slots;
    for (const std::int32_t token : which) slots.push_back(slot(token));
    auto at = GpuTensor::ints(which), slots_there = GpuTensor::ints(slots);
    expect_ok(rope_append({qkv, shape.heads, shape.kv_heads, shape.head_dim, norm_, norm_, 1e-6f, cos_sin_, at,
                           slots_there, k, v, scales},
                          nullptr));
    EXPECT_TRUE(qkv.guards_hold() && k.guards_hold() && v.guards_hold() && page_scales.guards_hold());
  }
  std::vector<std::int32_t> span(std::int64_t first, std::int64_t count) const {
    std::vector<std::int32_t> which(static_cast<std::size_t>(count));
    std::iota(which.begin(), which.end(), static_cast<std::int32_t>(first));
    return which;
  }
  KvScales by_page() const { return {1, 1, page_scales}; }
  // What float32 planes hold, and the scales by page.
  struct Wanted {
    std::vector<float> k, v, scales;
  };
  Wanted wanted() {
    Wanted out;
    out.k.resize(static_cast<std::size_t>(k.view().elements()));
    out.v.resize(out.k.size());
    out.scales.resize(static_cast<std::size_t>(pages * kPageScales));
    std::vector<float> qkv = rows, norm = norm_.floats(), turns = cos_sin_.floats();
    std::vector<std::int32_t> at = span(0, tokens), slots;
    for (const std::int32_t token : at) slots.push_back(slot(token));
    const std::int64_t d = shape.head_dim;
    ref_rope_append(ref_, {host_view(qkv, {tokens, shape.width()}), shape.heads, shape.kv_heads, d,
                           host_view(norm, {d}), host_view(norm, {d}), 1e-6f, host_view(turns, {tokens, d}), at, slots,
                           host_plane(out.k), host_plane(out.v), host_view(out.scales, {pages, kPageScales})});
    return out;
  }
  TensorView host_plane(std::vector<float>& numbers) const {
    return host_view(numbers, {pages, shape.page_size, shape.kv_heads, shape.head_dim});
  }
  // What the device's planes mean under its scales by page.
  std::vector<float> meaning(GpuTensor& plane, int which) {
    std::vector<float> numbers = plane.floats(), scales = page_scales.floats();
    ref_apply_page_scales(host_plane(numbers), host_view(scales, {pages, kPageScales}), which);
    return numbers;
  }

  const Shape shape;
  const DType dtype;
  const float deviation;
  const std::int64_t tokens, pages;
  std::vector<float> rows;

 private:
  ThreadPool pool_{1};
  RefOps ref_{pool_};
  std::vector<std::int32_t> table_;
  GpuTensor norm_, cos_sin_;

 public:
  GpuTensor k, v, page_scales;
  const std::vector<std::int32_t>& table() const { return table_; }
  RefOps& ref() { return ref_; }
};

Shape random_shape(std::mt19937& bits) {
  const int kv_heads = 1 << bits() % 4, dims[] = {64, 128, 80, 4};
  return {kv_heads * static_cast<int>(1 + bits() % 4), kv_heads, dims[bits() % 4], 1 << bits() % 6};
}

TEST(CudaKvScales, PagesGetTheScalesAndNumbersOfTheTwinForEveryShape) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 bits(seed);
    const DType dtype = std::array{DType::kBF16, DType::kF16, DType::kF32}[bits() % 3];
    Prompt prompt(random_shape(bits), dtype, 1 + static_cast<std::int64_t>(bits() % 150), seed, 2);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::int32_t> order = prompt.span(0, prompt.tokens);
    std::shuffle(order.begin(), order.end(), bits);  // a page's first token may come in a later row than its others
    prompt.append(order, prompt.by_page());
    const Prompt::Wanted want = prompt.wanted();
    std::vector<float> got = prompt.page_scales.floats();
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (i % kPageScales >= 2) continue;
      EXPECT_NEAR(got[i], want.scales[i], 1e-4f * want.scales[i]) << "scale " << i;
    }
    expect_close(prompt.meaning(prompt.k, 0), want.k, rounding(DType::kF8E4M3), 0.05, "keys");
    expect_close(prompt.meaning(prompt.v, 1), want.v, rounding(DType::kF8E4M3), 0.05, "values");
  }
}

TEST(CudaKvScales, HowAPromptIsCutChangesNoBitOfItsPages) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 bits(seed);
    const Shape shape = random_shape(bits);
    const std::int64_t tokens = 2 + static_cast<std::int64_t>(bits() % 100);
    Prompt whole(shape, DType::kBF16, tokens, seed), cut(shape, DType::kBF16, tokens, seed);
    whole.append(whole.span(0, tokens), whole.by_page());
    for (std::int64_t first = 0, count = 0; first < tokens; first += count) {
      count = std::min<std::int64_t>(tokens - first, 1 + static_cast<std::int64_t>(bits() % 20));
      cut.append(cut.span(first, count), cut.by_page());
    }
    EXPECT_EQ(cut.k.floats(), whole.k.floats()) << "seed " << seed;
    EXPECT_EQ(cut.v.floats(), whole.v.floats()) << "seed " << seed;
    EXPECT_EQ(cut.meaning(cut.k, 0), whole.meaning(whole.k, 0)) << "seed " << seed;
    EXPECT_EQ(cut.meaning(cut.v, 1), whole.meaning(whole.v, 1)) << "seed " << seed;
  }
}

TEST(CudaKvScales, APageThatIsUsedAgainForgetsItsScales) {
  const Shape shape{4, 2, 64, 16};
  Prompt used(shape, DType::kBF16, 40, 3), fresh(shape, DType::kBF16, 40, 3);
  for (float& x : used.rows) x *= 64;
  used.append(used.span(0, 40), used.by_page());
  used.rows = fresh.rows;
  for (const auto& [first, count] : {std::pair{0, 20}, {20, 20}}) {
    used.append(used.span(first, count), used.by_page());
    fresh.append(fresh.span(first, count), fresh.by_page());
  }
  EXPECT_EQ(used.k.floats(), fresh.k.floats());
  EXPECT_EQ(used.v.floats(), fresh.v.floats());
}

TEST(CudaKvScales, PagesCarryTheirScalesToOtherPlaces) {
  Prompt prompt({4, 2, 64, 16}, DType::kBF16, 90, 3, 10), other({4, 2, 64, 16}, DType::kBF16, 90, 4);
  prompt.append(prompt.span(0, 90), prompt.by_page());
  const auto planes_of = [](Prompt& p) {
    const auto plane = [](const TensorView& view) {
      const std::int64_t bytes = view.elements() / view.shape[0] * static_cast<std::int64_t>(bytes_of(view.dtype));
      return PagePlane{view.data, 1, view.shape[0], bytes, view.shape[0] * bytes};
    };
    return std::array{plane(p.k), plane(p.v), plane(p.page_scales)};
  };
  const auto from = planes_of(prompt), into = planes_of(other);
  auto ids = GpuTensor::ints(prompt.table());
  auto packed =
      GpuTensor(DType::kI32, {packed_page_bytes(from) * prompt.pages / 4}, 0, [](std::int64_t) { return 0.0f; });
  const auto count = static_cast<std::int32_t>(prompt.pages);
  expect_ok(gather_pages(from, ids.view().as<std::int32_t>(), count, packed.view().data, nullptr));
  expect_ok(scatter_pages(into, ids.view().as<std::int32_t>(), count, packed.view().data, nullptr));
  EXPECT_EQ(other.meaning(other.k, 0), prompt.meaning(prompt.k, 0));
  EXPECT_EQ(other.meaning(other.v, 1), prompt.meaning(prompt.v, 1));
}

TEST(CudaKvScales, ExpandedPagesAreWhatTheirNumbersMeanForEveryShape) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 bits(seed);
    const Shape shape{2, static_cast<int>(1 + bits() % 5), std::array{64, 128, 80}[bits() % 3], 1 << bits() % 6};
    const DType dtype = seed % 2 == 0 ? DType::kBF16 : DType::kF16;
    Prompt prompt(shape, dtype, 1 + static_cast<std::int64_t>(bits() % 200), seed, 10);
    prompt.append(prompt.span(0, prompt.tokens), prompt.by_page());
    const std::int64_t numbers = prompt.k.view().elements() / prompt.pages;
    std::vector<std::int32_t> which = prompt.table();  // in their order, some twice, one that there isn't
    which.insert(which.begin() + 1, {which[0], static_cast<std::int32_t>(prompt.pages)});
    auto ids = GpuTensor::ints(which);
    const std::vector<std::int64_t> room{prompt.pages + 3, shape.page_size, shape.kv_heads, shape.head_dim};
    auto k = GpuTensor::unwritten(dtype, room), v = GpuTensor::unwritten(dtype, room);
    expect_ok(expand_pages({prompt.k, prompt.v, prompt.page_scales, ids, k, v}, nullptr));
    for (const int half : {0, 1}) {
      const std::vector<float> meaning = half == 0 ? prompt.meaning(prompt.k, 0) : prompt.meaning(prompt.v, 1);
      const std::vector<float> got = half == 0 ? k.floats() : v.floats();
      for (std::int64_t i = 0; i < prompt.pages + 3; ++i) {
        const auto at = got.begin() + i * numbers;
        if (i == 2 || i == prompt.pages + 2) {
          EXPECT_TRUE(std::all_of(at, at + numbers, [](float x) { return std::isnan(x); })) << "not written";
          continue;
        }
        const auto from = meaning.begin() + which[static_cast<std::size_t>(i)] * numbers;
        expect_close({at, at + numbers}, {from, from + numbers}, rounding(dtype), 1e-3, "page " + std::to_string(i));
      }
    }
    EXPECT_TRUE(k.guards_hold() && v.guards_hold());
  }
}

TEST(CudaKvScales, ExpandingIntoLessRoomOrOtherTypesIsRefused) {
  Prompt prompt({2, 1, 64, 4}, DType::kBF16, 9, 1);
  auto ids = GpuTensor::ints({0, 1, 2});
  auto k = GpuTensor::unwritten(DType::kBF16, {3, 4, 1, 64}), less = GpuTensor::unwritten(DType::kBF16, {2, 4, 1, 64}),
       wide = GpuTensor::unwritten(DType::kF32, {3, 4, 1, 64}),
       none = GpuTensor::unwritten(DType::kF32, {2, kPageScales});
  const auto refused = [](const ExpandPages& call) {
    return expand_pages(call, nullptr).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused({prompt.k, prompt.v, prompt.page_scales, ids, k, k}));
  EXPECT_TRUE(refused({prompt.k, prompt.v, prompt.page_scales, ids, k, less}));
  EXPECT_TRUE(refused({prompt.k, prompt.v, prompt.page_scales, ids, wide, wide}));
  EXPECT_TRUE(refused({k, k, prompt.page_scales, ids, k, k}));
  EXPECT_TRUE(refused({prompt.k, prompt.v, {}, ids, k, k}));
  EXPECT_TRUE(refused({prompt.k, prompt.v, none, ids, k, k}));
}

TEST(CudaKvScales, FirstTokensWithoutSizeGetTheScaleOne) {
  Prompt zeros({2, 1, 64, 4}, DType::kF32, 4, 3);
  std::fill(zeros.rows.begin(), zeros.rows.end(), 0.0f);
  zeros.append(zeros.span(0, 4), zeros.by_page());
  const std::vector<float> scales = zeros.page_scales.floats();
  EXPECT_EQ(scales[0], 1);
  EXPECT_EQ(scales[1], 1);
}

// Row r attends the first lengths[r] tokens.
struct Attended {
  std::vector<float> got, want;
};
Attended attend(Prompt& prompt, const std::vector<std::int32_t>& lengths, const KvScales& scales, float softmax_scale) {
  const Shape& s = prompt.shape;
  const auto count = static_cast<std::int64_t>(lengths.size());
  const std::int64_t h = s.heads, d = s.head_dim;
  GpuTestDevice device;
  auto attention = std::move(PagedAttention::create(device, s.heads, s.kv_heads, s.head_dim, 64)).value();
  auto q = GpuTensor::random(9, prompt.dtype, {count, h, d}, 64),
       out = GpuTensor::unwritten(prompt.dtype, {count, h * d});
  const std::vector<std::int32_t> zeros(lengths.size(), 0), ones(lengths.size(), 1);
  auto lengths_there = GpuTensor::ints(lengths), first = GpuTensor::ints(zeros),
       table = GpuTensor::ints(prompt.table());
  const AttentionRows where{lengths_there.view().as<const std::int32_t>(), first.view().as<const std::int32_t>(),
                            table.view().as<const std::int32_t>()};
  expect_ok(attention->run(q, where, prompt.k, prompt.v, softmax_scale, out, nullptr, scales));
  EXPECT_TRUE(out.guards_hold());

  Prompt::Wanted planes = prompt.wanted();
  std::vector<float> from = q.floats(), want(from.size());
  std::vector<std::int32_t> rows, context;
  for (const std::int32_t length : lengths) {
    rows.push_back(static_cast<std::int32_t>(rows.size()));
    context.push_back(length - 1);
  }
  prompt.ref().paged_attention(host_view(from, {count, h, d}),
                               {rows, ones, context, zeros, prompt.table(), s.page_size}, prompt.host_plane(planes.k),
                               prompt.host_plane(planes.v), softmax_scale, host_view(want, {count, h, d}));
  return {out.floats(), want};
}

double relative_error(const Attended& a) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.want.size(); ++i) {
    error += std::pow(static_cast<double>(a.got[i]) - a.want[i], 2);
    norm += std::pow(static_cast<double>(a.want[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST(CudaKvScales, AttentionByPageStaysNearFloat32ForEveryShape) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 bits(seed);
    const DType dtype = std::array{DType::kBF16, DType::kF16, DType::kF32}[bits() % 3];
    const auto tokens = static_cast<std::int32_t>(2 + bits() % 400);
    Prompt prompt(random_shape(bits), dtype, tokens, seed, seed % 2 == 0 ? 1 : 100);
    prompt.append(prompt.span(0, tokens), prompt.by_page());
    const Attended all = attend(prompt, {1, tokens, tokens / 2, tokens}, prompt.by_page(), 0.03f / prompt.deviation);
    EXPECT_LT(relative_error(all), 0.05) << "seed " << seed << ", " << tokens << " tokens";
  }
}

// Keys and values of hundreds and more: beyond 448, e4m3 has nothing.
TEST(CudaKvScales, WhatIsBeyond448SaturatesWithoutScalesAndNotWithThem) {
  Prompt prompt({8, 2, 64, 16}, DType::kBF16, 300, 5, 1000);
  const auto error = [&](const KvScales& scales) {
    prompt.append(prompt.span(0, 300), scales);
    return relative_error(attend(prompt, {300, 150, 40}, scales, 3e-5f));
  };
  const double plain = error({}), for_all = error({40, 12, {}}), by_page = error(prompt.by_page());
  EXPECT_GT(plain, 0.2);
  EXPECT_LT(for_all, 0.04);
  EXPECT_LT(by_page, 0.04);
}

TEST(CudaKvScales, ScalesThatDontFitThePlanesAreRefused) {
  auto f8 = GpuTensor::random(1, DType::kF8E4M3, {3, 16, 2, 64}),
       wide = GpuTensor::random(1, DType::kBF16, {3, 16, 2, 64});
  auto by_page = GpuTensor::random(1, DType::kF32, {3, kPageScales}),
       fewer = GpuTensor::random(1, DType::kF32, {2, kPageScales}), pairs = GpuTensor::random(1, DType::kF32, {3, 2}),
       narrow = GpuTensor::random(1, DType::kBF16, {3, kPageScales});
  const auto fit = [](const KvScales& scales, const GpuTensor& plane) {
    return check_scales(scales, plane, "test").ok();
  };
  EXPECT_TRUE(fit({1, 1, by_page}, f8) && fit({2, 0.5f, {}}, f8) && fit({}, wide));
  EXPECT_FALSE(fit({1, 1, by_page}, wide));
  EXPECT_FALSE(fit({2, 1, {}}, wide));
  EXPECT_FALSE(fit({2, 1, by_page}, f8)) << "both forms at once";
  EXPECT_FALSE(fit({0, 1, {}}, f8));
  EXPECT_FALSE(fit({1, std::nanf(""), {}}, f8));
  for (const GpuTensor* wrong : {&fewer, &pairs, &narrow}) EXPECT_FALSE(fit({1, 1, *wrong}, f8));
}

}  // namespace
}  // namespace levada::kernels::cuda
