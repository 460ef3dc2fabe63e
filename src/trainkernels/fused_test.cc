// The reference of the fused attention against its own definition: visibility, softmax, and slopes by differences.
#include <gtest/gtest.h>

#include <cstring>
#include <list>

#include "trainkernels/fused_case_test.h"

namespace levada::trainkernels {
namespace {

using namespace test;

// Host memory that outlives a call.
struct HostMemory {
  template <class T>
  T* put(const std::vector<T>& values) {
    auto& place = places.emplace_back(std::max<std::size_t>(1, values.size() * sizeof(T)));
    if (!values.empty()) std::memcpy(place.data(), values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(place.data());
  }
  template <class T>
  void take(const void* from, std::vector<T>& to) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size() * sizeof(T));
  }
  void must(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }
  std::list<std::vector<std::byte>> places;
};

AttentionAnswer<float> reference(const AttentionCase<float>& c) {
  HostMemory memory;
  return attend(*make_reference_kernels(), Element::kFloat, c, memory);
}

std::vector<AttentionShape> shapes() {
  AttentionShape small, sliding, wide;
  small.head_dim = 8;
  small.contexts = {0, 5, 70};
  sliding = small;
  sliding.window = 6;
  sliding.block = 5;
  wide = small;
  wide.block = 70;  // wider than a tile
  wide.blocks = 2;
  return {small, sliding, wide};
}

TEST(AttentionTiles, HoldEveryRowAndKeyOnceAndAllThatSeeEachOther) {
  for (const AttentionShape& shape : shapes()) {
    const AttentionCase<float> c(shape, 1);
    std::vector<int> rows(static_cast<std::size_t>(c.own_rows)), keys[2];
    keys[0].resize(static_cast<std::size_t>(c.context_rows));
    keys[1].resize(static_cast<std::size_t>(c.own_rows));
    for (const QueryTile& tile : c.tiles.queries) {
      EXPECT_LE(tile.rows, kTileRows);
      for (std::int32_t r = tile.first_row; r < tile.first_row + tile.rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        ++rows[row];
        for (int set = 0; set < 2; ++set) {
          for (std::int32_t key = 0; key < static_cast<std::int32_t>(keys[set].size()); ++key) {
            if (c.sees(row, set, key)) {
              ASSERT_TRUE(key >= tile.key_begin[set] && key < tile.key_end[set]) << row << " " << set << " " << key;
            }
          }
        }
      }
    }
    for (const KeyTile& tile : c.tiles.keys) {
      EXPECT_LE(tile.keys, kTileRows);
      for (std::int32_t key = tile.first_key; key < tile.first_key + tile.keys; ++key) {
        ++keys[tile.set][static_cast<std::size_t>(key)];
        for (std::size_t row = 0; row < rows.size(); ++row) {
          if (!c.sees(row, tile.set, key)) continue;
          const auto r = static_cast<std::int32_t>(row);
          ASSERT_TRUE(r >= tile.row_begin && r < tile.row_end) << row << " " << tile.set << " " << key;
        }
      }
    }
    for (const std::vector<int>& counts : {rows, keys[0], keys[1]}) {
      EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), static_cast<std::ptrdiff_t>(counts.size()));
    }
  }
}

TEST(ReferenceAttention, WeighsValuesByTheSoftmaxOfWhatARowSees) {
  for (const AttentionShape& shape : shapes()) {
    AttentionCase<float> c(shape, 2);
    std::fill(c.q.begin(), c.q.end(), 0.f);  // all visible keys weigh the same
    const AttentionAnswer<float> answer = reference(c);
    const std::int64_t d = shape.head_dim, kv_width = shape.kv_heads * d, q_width = shape.heads * d;
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.own_rows); ++row) {
      double sum = 0;
      int count = 0;
      for (std::int64_t key = 0; key < c.context_rows; ++key) {
        if (!c.sees(row, 0, key)) continue;
        sum += c.context_v[static_cast<std::size_t>(key * 2 * kv_width)];
        ++count;
      }
      for (std::int64_t key = 0; key < c.own_rows; ++key) {
        if (!c.sees(row, 1, key)) continue;
        sum += c.own_v[static_cast<std::size_t>(key * (q_width + kv_width))];
        ++count;
      }
      EXPECT_NEAR(answer.out[row * static_cast<std::size_t>(q_width)], sum / count, 1e-5);
      EXPECT_NEAR(answer.lse[row * static_cast<std::size_t>(shape.heads)], std::log(count), 1e-5);
    }
  }
}

// sum of dout * out, whose slopes the backward pass computes.
double objective(const AttentionCase<float>& c) {
  const AttentionAnswer<float> answer = reference(c);
  double sum = 0;
  for (std::size_t i = 0; i < answer.out.size(); ++i) sum += static_cast<double>(answer.out[i]) * c.dout[i];
  return sum;
}

TEST(ReferenceAttention, GradientsAreTheSlopesOfTheForwardPass) {
  for (AttentionShape shape : shapes()) {
    shape.contexts = {0, 7};
    AttentionCase<float> c(shape, 3);
    const AttentionAnswer<float> answer = reference(c);
    auto check = [&](std::vector<float>& input, const std::vector<float>& gradient, const char* what) {
      ASSERT_EQ(input.size(), gradient.size());
      for (int i = 0; i < 6 && !input.empty(); ++i) {
        const std::size_t at = c.random() % input.size();
        const float before = input[at], step = 0.02f;
        input[at] = before + step;
        const double above = objective(c);
        input[at] = before - step;
        const double below = objective(c);
        input[at] = before;
        EXPECT_NEAR(gradient[at], (above - below) / (2 * static_cast<double>(step)), 2e-3) << what << " " << at;
      }
    };
    check(c.q, answer.dq, "q");
    check(c.own_k, answer.own_dk, "own k");
    check(c.own_v, answer.own_dv, "own v");
    check(c.context_k, answer.context_dk, "context k");
    check(c.context_v, answer.context_dv, "context v");
  }
}

}  // namespace
}  // namespace levada::trainkernels
