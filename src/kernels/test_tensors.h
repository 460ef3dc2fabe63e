// What: tensors with seeded random contents, and a paged cache, for the tests of this room.
// Owner: a Tensor owns its memory; views must not outlive it.
// Thread: one.
// Invariant: the same seed gives the same numbers everywhere. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/ops.h"

namespace levada::kernels {

// Rows of `shape`, the first dimension's stride widened by `gap` elements.
class Tensor {
 public:
  Tensor(DType dtype, std::vector<std::int64_t> shape, std::int64_t gap = 0) {
    view_.dtype = dtype;
    view_.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      view_.shape[d] = shape[d];
      view_.strides[d] = stride;
      stride *= shape[d];
      if (d == 1) stride += gap;
    }
    bytes_.assign(static_cast<std::size_t>(stride) * bytes_of(dtype), 0);
    view_.data = bytes_.data();
  }
  Tensor(const Tensor& other) : view_(other.view_), bytes_(other.bytes_) { view_.data = bytes_.data(); }
  Tensor& operator=(Tensor other) {
    view_ = other.view_;
    bytes_ = std::move(other.bytes_);
    view_.data = bytes_.data();
    return *this;
  }

  static Tensor random(std::uint64_t seed, DType dtype, std::vector<std::int64_t> shape, std::int64_t gap = 0) {
    Tensor t(dtype, std::move(shape), gap);
    std::mt19937_64 bits(seed);
    std::normal_distribution<float> normal;
    const std::size_t count = t.bytes_.size() / bytes_of(dtype);
    for (std::size_t i = 0; i < count; ++i) t.set(i, normal(bits));
    return t;
  }

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  void set(std::size_t i, float x) {
    if (view_.dtype == DType::kBF16) {
      view_.as<Bf16>()[i] = to_bf16(x);
    } else if (view_.dtype == DType::kF16) {
      view_.as<_Float16>()[i] = static_cast<_Float16>(x);
    } else {
      view_.as<float>()[i] = x;
    }
  }
  float* f32() { return view_.as<float>(); }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

  // Rows [first, first + count) as a view.
  TensorView rows(std::int64_t first, std::int64_t count) const {
    TensorView v = view_;
    v.data = static_cast<char*>(v.data) + first * v.strides[0] * static_cast<std::int64_t>(bytes_of(v.dtype));
    v.shape[0] = count;
    return v;
  }

 private:
  TensorView view_;
  std::vector<std::uint8_t> bytes_;
};

// The numbers a view shows, row by row.
inline std::vector<float> values(const TensorView& t) {
  std::vector<float> out;
  for (std::int64_t a = 0; a < t.shape[0]; ++a) {
    for (std::int64_t b = 0; b < (t.rank > 1 ? t.shape[1] : 1); ++b) {
      for (std::int64_t c = 0; c < (t.rank > 2 ? t.shape[2] : 1); ++c) {
        out.push_back(t.as<const float>()[a * t.strides[0] + b * t.strides[1] + c * t.strides[2]]);
      }
    }
  }
  return out;
}

// |got - want| <= tolerance * (|want| + scale): `scale` is the size of the terms that were summed.
inline void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance, double scale,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (std::abs(want[i]) + scale)) << what << " element " << i;
  }
}

// The tables this machine can run, "ref" left out.
inline std::vector<std::string> tuned_tables() {
  std::vector<std::string> names;
  ThreadPool pool(1);
  for (const char* name : {"avx2", "avx512", "avx512_bf16"}) {
    if (make_cpu_ops(pool, name)) names.emplace_back(name);
  }
  return names;
}

// A cache whose slices lie on shuffled pages, filled with random keys and values.
struct Cache {
  std::vector<std::int32_t> first_row, rows, context, block_table_first, block_tables;
  std::vector<std::int32_t> first_key;  // empty unless a test sets it
  Tensor k, v;
  std::int32_t page_size;

  struct Slice {
    std::int32_t context, rows;
  };

  Cache(std::uint64_t seed, DType dtype, std::int32_t page, std::int64_t kv_heads, std::int64_t d,
        const std::vector<Slice>& slices)
      : k(dtype, {1, 1, 1, 1}), v(dtype, {1, 1, 1, 1}), page_size(page) {
    std::int32_t row = 0, pages = 0;
    for (const Slice& s : slices) {
      first_row.push_back(row);
      rows.push_back(s.rows);
      context.push_back(s.context);
      block_table_first.push_back(pages);
      row += s.rows;
      pages += (s.context + s.rows + page - 1) / page;
    }
    for (std::int32_t p = 0; p < pages; ++p) block_tables.push_back(p);
    std::shuffle(block_tables.begin(), block_tables.end(), std::mt19937(static_cast<unsigned>(seed)));
    k = Tensor::random(seed + 1, dtype, {pages, page, kv_heads, d});
    v = Tensor::random(seed + 2, dtype, {pages, page, kv_heads, d});
  }

  std::int64_t total_rows() const { return first_row.back() + rows.back(); }
  PagedBatch batch() const { return {first_row, rows, context, block_table_first, block_tables, page_size, first_key}; }
  // NaN to every position before first_key.
  void poison_unseen() {
    for (std::size_t s = 0; s < first_key.size(); ++s) {
      for (std::int32_t p = 0; p < first_key[s]; ++p) {
        const std::int64_t page = block_tables[static_cast<std::size_t>(block_table_first[s] + p / page_size)];
        const std::int64_t token = k.view().strides[1], at = (page * page_size + p % page_size) * token;
        for (std::int64_t i = at; i < at + token; ++i) {
          k.set(static_cast<std::size_t>(i), std::numeric_limits<float>::quiet_NaN());
          v.set(static_cast<std::size_t>(i), std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
  }
};

}  // namespace levada::kernels
