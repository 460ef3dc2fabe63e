// What: causal attention over the paged cache for one instruction set: blocks of keys, running softmax, spans merged.
// Owner: none.
// Thread: any, on disjoint query rows.
// Invariant: key blocks and spans start at fixed positions (the first block of all at the first key) and a row adds its keys
// in ascending order, so a row's bits depend on its position, its first key and the cache alone: not on the chunk, the
// tile or which thread took which span. Included once by each avx*_table.cc, which supplies V.
#pragma once

#include "kernels/cpu/dot_impl.h"
#include "kernels/cpu/rows_impl.h"

namespace levada::kernels {
namespace {

constexpr std::int64_t kBlockKeys = 64;
static_assert(kSpanKeys % kBlockKeys == 0);
// How many keys before its use a key's memory is asked for.
constexpr std::int64_t kFetchKeys = 32;

// The running softmax of `rows` query rows: output not yet divided, maximum, sum.
struct Running {
  float* acc;  // [rows, padded width]
  float* max;  // [rows]
  float* sum;  // [rows]
};

template <class V>
std::int64_t padded(std::int64_t width) {
  return (width + V::kWidth - 1) / V::kWidth * V::kWidth;
}

template <class V>
std::int64_t partial_floats(std::int64_t query_rows, std::int64_t width) {
  return padded<V>(query_rows * (padded<V>(width) + 2));
}

template <class V>
std::int64_t attention_scratch(std::int64_t query_rows, std::int64_t width) {
  return query_rows * padded<V>(width) + 2 * kBlockKeys * padded<V>(width) + query_rows * kBlockKeys +
         2 * partial_floats<V>(query_rows, width);
}

template <class V>
struct Attention {
  const AttentionArgs& a;
  std::int64_t rows, width;  // query rows; padded head width
  float *q, *k, *v, *scores;
  Running part, total;

  Attention(const AttentionArgs& args, float* scratch)
      : a(args), rows(args.queries * args.group), width(padded<V>(args.width)) {
    q = scratch;
    k = q + rows * width;
    v = k + kBlockKeys * width;
    scores = v + kBlockKeys * width;
    part = running_at(scores + rows * kBlockKeys);
    total = running_at(scores + rows * kBlockKeys + partial_floats<V>(rows, args.width));
  }

  Running running_at(float* p) const { return {p, p + rows * width, p + rows * width + rows}; }

  void reset(const Running& r) const {
    for (std::int64_t i = 0; i < rows * width; i += V::kWidth) V::store(r.acc + i, V::zero());
    for (std::int64_t i = 0; i < rows; ++i) {
      r.max[i] = -__builtin_inff();
      r.sum[i] = 0;
    }
  }

  // How many of the `keys` keys from position `key` on the row sees; may be negative.
  std::int64_t visible(std::int64_t row, std::int64_t key, std::int64_t keys) const {
    const std::int64_t seen = a.first_position + row / a.group + 1 - key;
    return seen < keys ? seen : keys;
  }

  // One row of `width` values, zeros behind a.width.
  template <class T>
  void widen(const T* from, float* to) const {
    std::int64_t i = 0;
    for (; i + V::kWidth <= a.width; i += V::kWidth) V::store(to + i, V::load(from + i));
    if (i < a.width) V::store(to + i, V::load_n(from + i, static_cast<int>(a.width - i)));
  }

  void load_queries() const {
    const V scale = V::set(a.scale);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* to = q + row * width;
      widen(a.q + row / a.group * a.q_row_stride + row % a.group * a.q_head_stride, to);
      for (std::int64_t i = 0; i < width; i += V::kWidth) V::store(to + i, V::mul(V::load(to + i), scale));
    }
  }

  // Where the vector of a position starts in the planes; positions are taken in ascending order.
  struct Cursor {
    const AttentionArgs& a;
    std::int64_t page, slot;

    Cursor(const AttentionArgs& args, std::int64_t position)
        : a(args), page(position / args.page_size), slot(position % args.page_size) {}
    std::int64_t offset() const { return (a.block_table[page] * a.page_size + slot) * a.token_stride; }
    void advance() {
      if (++slot == a.page_size) {
        slot = 0;
        ++page;
      }
    }
  };

  template <class T>
  void fetch(std::int64_t at) const {
    for (std::int64_t i = 0; i < a.width; i += 64 / std::int64_t{sizeof(T)}) {
      __builtin_prefetch(static_cast<const T*>(a.k_plane) + at + i, 0, 2);
      __builtin_prefetch(static_cast<const T*>(a.v_plane) + at + i, 0, 2);
    }
  }

  // Keys lie one token apart, in pages anywhere: the processor can't guess the next, so it is told.
  template <class T>
  void load_keys_as(std::int64_t key, std::int64_t keys) const {
    const std::int64_t fetchable = a.first_position + a.queries - key - kFetchKeys;
    Cursor cursor(a, key), ahead(a, key + kFetchKeys);
    for (std::int64_t j = 0; j < keys; ++j, cursor.advance(), ahead.advance()) {
      if (j < fetchable) fetch<T>(ahead.offset());
      const std::int64_t at = cursor.offset();
      widen(static_cast<const T*>(a.k_plane) + at, k + j * width);
      widen(static_cast<const T*>(a.v_plane) + at, v + j * width);
    }
  }

  void load_keys(std::int64_t key, std::int64_t keys) const {
    if (a.planes_are_bf16) {
      load_keys_as<Bf16>(key, keys);
    } else {
      load_keys_as<float>(key, keys);
    }
  }

  template <int R>
  [[gnu::noinline]] void score_rows(std::int64_t row, std::int64_t keys) const {
    for (std::int64_t j = 0; j < keys; j += 4) {
      __m128 sums[R];
      dot_tile<V, R, float, 0>(q + row * width, width, four_rows<float>(k + j * width, width, keys - j), width, nullptr,
                               0, sums);
#pragma GCC unroll 8
      for (int i = 0; i < R; ++i) _mm_storeu_ps(scores + (row + i) * kBlockKeys + j, sums[i]);
    }
  }

  void score(std::int64_t keys) const {
    for_row_tiles<V::kTileRows>(rows, [&]<int R>(std::int64_t row) { score_rows<R>(row, keys); });
  }

  // Turns the first `keys` scores of a row into weights and brings its running softmax to the new maximum.
  void softmax_row(std::int64_t row, std::int64_t keys) const {
    float* s = scores + row * kBlockKeys;
    V largest = V::set(-__builtin_inff());
    std::int64_t j = 0;
    for (; j + V::kWidth <= keys; j += V::kWidth) largest = V::max(V::load(s + j), largest);
    const int rest = static_cast<int>(keys - j);
    if (rest > 0) largest = V::max(V::pad_n(V::load(s + j), rest, -__builtin_inff()), largest);
    const float block_max = V::largest(largest);
    const float old_max = part.max[row];
    const float new_max = old_max > block_max ? old_max : block_max;

    const V shift = V::set(-new_max);
    V sum = V::zero();
    for (j = 0; j + V::kWidth <= keys; j += V::kWidth) {
      const V p = exp<V>(V::add(V::load(s + j), shift));
      V::store(s + j, p);
      sum = V::add(sum, p);
    }
    if (rest > 0) {
      const V p = V::first_n(exp<V>(V::add(V::load(s + j), shift)), rest);
      V::store(s + j, p);
      sum = V::add(sum, p);
    }
    const V factor = exp<V>(V::set(old_max - new_max));
    part.max[row] = new_max;
    part.sum[row] = part.sum[row] * V::first(factor) + V::sum(sum);
    float* acc = part.acc + row * width;
    if (old_max == new_max) return;  // factor is exactly 1
    for (std::int64_t i = 0; i < width; i += V::kWidth) V::store(acc + i, V::mul(V::load(acc + i), factor));
  }

  // acc[r] += sum over keys [begin, end), ascending, of weight * values(key), for R rows and C vectors from column on.
  template <int R, int C, class Values>
  [[gnu::always_inline]] void add_values(std::int64_t row, std::int64_t column, std::int64_t begin, std::int64_t end,
                                         const Values& values) const {
    V acc[R][C];
    float* out = part.acc + row * width + column;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][c] = V::load(out + r * width + c * V::kWidth);
    }
    for (std::int64_t j = begin; j < end; ++j) {
      V value[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) value[c] = V::load(values(j) + column + c * V::kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V weight = V::set(scores[(row + r) * kBlockKeys + j]);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) acc[r][c] = V::fma(weight, value[c], acc[r][c]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) V::store(out + r * width + c * V::kWidth, acc[r][c]);
    }
  }

  template <int R, class Values>
  void add_all_columns(std::int64_t row, std::int64_t begin, std::int64_t end, const Values& values) const {
    if (begin >= end) return;
    std::int64_t column = 0;
    for (; column + 4 * V::kWidth <= width; column += 4 * V::kWidth) add_values<R, 4>(row, column, begin, end, values);
    for (; column < width; column += V::kWidth) add_values<R, 1>(row, column, begin, end, values);
  }

  // Keys that all rows of a tile see are added together, the rest (the causal edge) row by row.
  void weigh(std::int64_t key, std::int64_t keys) const {
    const auto widened = [this](std::int64_t j) __attribute__((always_inline)) { return v + j * width; };
    for_row_tiles<V::kTileRows>(rows, [&]<int R>(std::int64_t r) {
      const std::int64_t seen = visible(r, key, keys);
      const std::int64_t common = seen > 0 ? seen : 0;  // row r, the earliest, sees the fewest
      add_all_columns<R>(r, 0, common, widened);
      for (std::int64_t i = r; i < r + R; ++i) add_all_columns<1>(i, common, visible(i, key, keys), widened);
    });
  }

  // A lone query's heads fit one tile, which meets every key once: keys and values are widened on the way.
  bool streams() const { return a.queries == 1 && rows <= V::kTileRows && width == a.width; }

  template <class T>
  void fetch(const T* row) const {
    for (std::int64_t i = 0; i < a.width; i += 64 / std::int64_t{sizeof(T)}) __builtin_prefetch(row + i, 0, 2);
  }

  // Where the keys of a block lie.
  void locate(std::int64_t key, std::int64_t keys, std::int64_t (&at)[kBlockKeys]) const {
    Cursor cursor(a, key);
    for (std::int64_t j = 0; j < keys; ++j, cursor.advance()) at[j] = cursor.offset();
  }

  // While a block is computed the next `more` keys are fetched, in step: memory takes a few dozen lines at a time.
  template <int R, class T>
  void stream_keys(std::int64_t key, std::int64_t keys, std::int64_t more) const {
    const auto* const k_plane = static_cast<const T*>(a.k_plane);
    const auto* const v_plane = static_cast<const T*>(a.v_plane);
    std::int64_t at[kBlockKeys], next[kBlockKeys];
    locate(key, keys, at);
    locate(key + keys, more, next);
    for (std::int64_t j = 0; j < keys; j += 4) {
      FourRows<T> four;
      for (std::int64_t i = 0; i < 4; ++i) four.row[i] = k_plane + at[j + i < keys ? j + i : keys - 1];
      for (std::int64_t i = j; i < j + 4 && i < more; ++i) fetch(k_plane + next[i]);
      __m128 sums[R];
      dot_tile<V, R, T, 0>(q, width, four, width, nullptr, 0, sums);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) _mm_storeu_ps(scores + r * kBlockKeys + j, sums[r]);
    }
    for (int r = 0; r < R; ++r) softmax_row(r, keys);
    add_all_columns<R>(
        0, 0, keys, [&](std::int64_t j) __attribute__((always_inline)) {
          if (j < more) fetch(v_plane + next[j]);
          return v_plane + at[j];
        });
  }

  template <class T>
  void stream_span(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = end - begin < kBlockKeys ? end - begin : kBlockKeys;
    std::int64_t at[kBlockKeys];
    locate(begin, first, at);
    for (std::int64_t j = 0; j < first; ++j) fetch(static_cast<const T*>(a.k_plane) + at[j]);
    for (std::int64_t j = 0; j < first; ++j) fetch(static_cast<const T*>(a.v_plane) + at[j]);
    visit_tile<V::kTileRows>(0, rows, [&]<int R>(std::int64_t) {
      for (std::int64_t key = begin; key < end; key += kBlockKeys) {
        const std::int64_t keys = end - key < kBlockKeys ? end - key : kBlockKeys, left = end - key - keys;
        stream_keys<R, T>(key, keys, left < kBlockKeys ? left : kBlockKeys);
      }
    });
  }

  // The part of the softmax that lies in one span, from nothing, into `part`. Queries are loaded already.
  void run_span(std::int64_t span) const {
    reset(part);
    const std::int64_t begin = span * kSpanKeys > a.first_key ? span * kSpanKeys : a.first_key;
    const std::int64_t seen = a.first_position + a.queries;
    const std::int64_t span_end = (span + 1) * kSpanKeys;
    const std::int64_t end = seen < span_end ? seen : span_end;
    if (streams()) {
      return a.planes_are_bf16 ? stream_span<Bf16>(begin, end) : stream_span<float>(begin, end);
    }
    for (std::int64_t key = begin; key < end; key += kBlockKeys) {
      const std::int64_t keys = end - key < kBlockKeys ? end - key : kBlockKeys;
      load_keys(key, keys);
      score(keys);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t seen_here = visible(row, key, keys);
        if (seen_here > 0) softmax_row(row, seen_here);
      }
      weigh(key, keys);
    }
  }

  void merge_span(std::int64_t span, const Running& from) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      if (visible(row, span * kSpanKeys, kSpanKeys) <= 0) continue;
      const float old_max = total.max[row];
      const float new_max = old_max > from.max[row] ? old_max : from.max[row];
      const V keep = exp<V>(V::set(old_max - new_max)), take = exp<V>(V::set(from.max[row] - new_max));
      total.max[row] = new_max;
      total.sum[row] = total.sum[row] * V::first(keep) + from.sum[row] * V::first(take);
      float* acc = total.acc + row * width;
      const float* more = from.acc + row * width;
      for (std::int64_t i = 0; i < width; i += V::kWidth) {
        V::store(acc + i, V::fma(V::load(more + i), take, V::mul(V::load(acc + i), keep)));
      }
    }
  }

  void finish() const {
    for (std::int64_t row = 0; row < rows; ++row) {
      const V factor = V::set(1.0f / total.sum[row]);
      const float* acc = total.acc + row * width;
      float* out = a.out + row / a.group * a.out_row_stride + row % a.group * a.out_head_stride;
      std::int64_t i = 0;
      for (; i + V::kWidth <= a.width; i += V::kWidth) V::store(out + i, V::mul(V::load(acc + i), factor));
      const int rest = static_cast<int>(a.width - i);
      if (rest > 0) V::store_n(out + i, V::mul(V::load(acc + i), factor), rest);
    }
  }
};

template <class V>
void attend(const AttentionArgs& a, float* scratch) {
  const Attention<V> attention(a, scratch);
  attention.load_queries();
  attention.reset(attention.total);
  for (std::int64_t span = first_span(a); span * kSpanKeys < a.first_position + a.queries; ++span) {
    attention.run_span(span);
    attention.merge_span(span, attention.part);
  }
  attention.finish();
}

template <class V>
void attend_span(const AttentionArgs& a, std::int64_t span, float* partial, float* scratch) {
  Attention<V> attention(a, scratch);
  attention.part = attention.running_at(partial);
  attention.load_queries();
  attention.run_span(span);
}

template <class V>
void merge_spans(const AttentionArgs& a, std::int64_t spans, const float* partials, float* scratch) {
  const Attention<V> attention(a, scratch);
  attention.reset(attention.total);
  const std::int64_t step = partial_floats<V>(attention.rows, a.width);
  for (std::int64_t span = 0; span < spans; ++span) {
    attention.merge_span(first_span(a) + span, attention.running_at(const_cast<float*>(partials) + span * step));
  }
  attention.finish();
}

}  // namespace
}  // namespace levada::kernels
