// What: random attention problems for the tests of FusedKernels, in plain memory.
// Owner: the test.
// Thread: one.
// Invariant: the numbers depend on the seed alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "trainkernels/attention_tiles.h"
#include "trainkernels/fused.h"

namespace levada::trainkernels::test {

inline float number(float x) { return x; }
inline float number(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
inline void assign(float& to, float x) { to = x; }
// Truncated: any nearby value is as random.
inline void assign(Bf16& to, float x) { to.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); }

template <class T>
std::vector<T> random_values(std::mt19937& random, std::int64_t count, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) assign(value, normal(random));
  return values;
}

struct AttentionShape {
  std::int64_t block = 8, heads = 6, kv_heads = 2, head_dim = 64;
  std::int64_t window = 0;                // 0: all context before the anchor and the whole block
  std::vector<std::int64_t> contexts{9};  // tokens before the last anchor, per sample
  std::int64_t blocks = 3;                // per sample
};

// Inputs, visibility and work lists of one problem. Values lie in wider rows, as a projection leaves them.
template <class T>
struct AttentionCase {
  AttentionCase(const AttentionShape& s, unsigned seed) : shape(s), random(seed) {
    std::vector<TileSource> samples;
    std::int64_t keys = 0, rows = 0;
    for (std::int64_t context : s.contexts) {
      std::vector<std::int64_t> anchors(static_cast<std::size_t>(s.blocks));
      for (std::int64_t& anchor : anchors) anchor = std::uniform_int_distribution<std::int64_t>(0, context)(random);
      anchors.back() = context;
      std::sort(anchors.begin(), anchors.end());
      for (std::int64_t anchor : anchors) see(keys, anchor);
      samples.push_back({keys, context, rows, s.blocks * s.block});
      keys += context;
      rows += s.blocks * s.block;
    }
    context_rows = keys;
    own_rows = rows;
    tiles = make_attention_tiles(samples, s.block, begin, end);
    const std::int64_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    q = random_values<T>(random, rows * q_width);
    dout = random_values<T>(random, rows * q_width);
    own_k = random_values<T>(random, rows * kv_width);
    own_v = random_values<T>(random, rows * (q_width + kv_width));
    context_k = random_values<T>(random, keys * kv_width);
    context_v = random_values<T>(random, keys * 2 * kv_width);
  }

  void see(std::int64_t first_key, std::int64_t anchor) {
    for (std::int64_t offset = 0; offset < shape.block; ++offset) {
      const std::int64_t from = shape.window > 0 ? std::max<std::int64_t>(0, anchor + offset - shape.window + 1) : 0;
      begin.push_back(first_key + std::min(anchor, from));
      end.push_back(first_key + anchor);
      own_end.push_back(shape.window > 0 ? offset + 1 : shape.block);
    }
  }
  bool sees(std::size_t row, int set, std::int64_t key) const {
    const std::int64_t own = static_cast<std::int64_t>(row) / shape.block * shape.block;
    return set == 0 ? key >= begin[row] && key < end[row] : key >= own && key < own + own_end[row];
  }

  AttentionShape shape;
  std::mt19937 random;
  std::int64_t context_rows = 0, own_rows = 0;
  std::vector<std::int64_t> begin, end, own_end;
  AttentionTiles tiles;
  std::vector<T> q, dout, own_k, own_v, context_k, context_v;
};

template <class T>
struct AttentionAnswer {
  std::vector<T> out, dq, own_dk, own_dv, context_dk, context_dv;
  std::vector<float> lse;
};

// Both passes. Memory gives vectors a place where the kernels run: put(vector) and take(vector) by their copies.
template <class T, class Memory>
AttentionAnswer<T> attend(FusedKernels& kernels, Element type, const AttentionCase<T>& c, Memory& memory) {
  const AttentionShape& s = c.shape;
  const std::int64_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  AttentionAnswer<T> r;
  r.out.resize(c.q.size());
  r.dq.resize(c.q.size());
  r.own_dk.resize(c.own_k.size());
  r.own_dv.resize(c.own_v.size());
  r.context_dk.resize(c.context_k.size());
  r.context_dv.resize(c.context_v.size());
  r.lse.resize(static_cast<std::size_t>(c.own_rows * s.heads));
  Attention a;
  a.rows = c.own_rows;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.block = s.block;
  a.scale = 1.f / std::sqrt(static_cast<float>(s.head_dim));
  a.q = memory.put(c.q);
  a.dout = memory.put(c.dout);
  a.out = memory.put(r.out);
  a.dq = memory.put(r.dq);
  a.q_stride = a.out_stride = a.dout_stride = a.dq_stride = q_width;
  a.lse = memory.put(r.lse);
  a.delta = memory.put(r.lse);
  a.keys[0] = {memory.put(c.context_k),
               memory.put(c.context_v),
               memory.put(r.context_dk),
               memory.put(r.context_dv),
               kv_width,
               2 * kv_width,
               kv_width,
               2 * kv_width};
  a.keys[1] = {memory.put(c.own_k),
               memory.put(c.own_v),
               memory.put(r.own_dk),
               memory.put(r.own_dv),
               kv_width,
               q_width + kv_width,
               kv_width,
               q_width + kv_width};
  a.key_begin = memory.put(c.begin);
  a.key_end = memory.put(c.end);
  a.own_end = memory.put(c.own_end);
  a.query_tiles = memory.put(c.tiles.queries);
  a.key_tiles = memory.put(c.tiles.keys);
  a.query_tile_count = static_cast<std::int64_t>(c.tiles.queries.size());
  a.key_tile_count = static_cast<std::int64_t>(c.tiles.keys.size());
  memory.must(kernels.attention(type, a));
  memory.must(kernels.attention_backward(type, a));
  memory.take(a.out, r.out);
  memory.take(a.lse, r.lse);
  memory.take(a.dq, r.dq);
  memory.take(a.keys[0].dk, r.context_dk);
  memory.take(a.keys[0].dv, r.context_dv);
  memory.take(a.keys[1].dk, r.own_dk);
  memory.take(a.keys[1].dv, r.own_dv);
  return r;
}

}  // namespace levada::trainkernels::test
