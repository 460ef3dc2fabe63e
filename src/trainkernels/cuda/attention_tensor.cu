#include "trainkernels/cuda/attention_rows.cuh"

// Tiles of 64 x head_dim values in shared memory (the next ones on their way while the last are worked on), products of 16 x 8 x 16 on the tensor cores (mma.sync), float32 sums in
// registers. Each of a block's four warps has 16 rows of the tile that the block owns: queries in the forward pass and for
// dq, keys for dk and dv, where the scores are computed transposed so that probabilities are already in the place the
// next product wants them.
namespace levada::trainkernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr float kLog2e = 1.4426950408889634f;

template <int D>
struct Shape {
  static constexpr int kStride =
      D + 8;  // of a shared row: shifts rows by four banks, so that ldmatrix meets no conflict
  static constexpr int kTile = kTileRows * kStride;
};

using Four = std::uint32_t[4];
using Sums = float[4];  // rows lane / 4 and + 8, columns 2 * (lane % 4) and + 1

__device__ inline void load_matrices(Four& to, const bf16* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}
__device__ inline void load_transposed(Four& to, const bf16* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}
__device__ inline void multiply(Sums& c, const Four& a, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline std::uint32_t packed(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// Starts copying `count` rows of D values from `from` on, zeros beyond.
template <int D>
__device__ void copy_tile(bf16* to, const bf16* from, std::int64_t stride, int count) {
#pragma unroll
  for (int i = threadIdx.x; i < kTileRows * D / 8; i += kThreads) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    copy_16(to + row * Shape<D>::kStride + column, from + (row < count ? row : 0) * stride + column, row < count);
  }
}
// All committed copies but the last are there, for every thread.
__device__ inline void wait_for_all_but_last() {
  wait_for_copies<1>();
  __syncthreads();
}
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// sums[n] += rows [warp * 16, + 16) of `a` times rows [8 n, + 8) of `b`, both [64][D] in shared memory: a b^T.
template <int D>
__device__ inline void multiply_rows(Sums (&sums)[8], const bf16* a, const bf16* b) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bf16* from = a + (warp * 16 + lane % 16) * Shape<D>::kStride + lane / 16 * 8;
  const bf16* other = b + (lane % 8 + lane / 16 * 8) * Shape<D>::kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    Four left;
    load_matrices(left, from + k);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      Four right;
      load_matrices(right, other + n * 8 * Shape<D>::kStride + k);
      multiply(sums[n], left, right[0], right[1]);
      multiply(sums[n + 1], left, right[2], right[3]);
    }
  }
}

// sums += p b with p [16 of this warp][64] in registers as multiply_rows leaves it, rounded to bf16, and b [64][D].
template <int D>
__device__ inline void multiply_values(Sums (&sums)[D / 8], const Sums (&p)[8], const bf16* b) {
  const int lane = threadIdx.x % 32;
  const bf16* other = b + (lane % 8 + lane / 8 % 2 * 8) * Shape<D>::kStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const Four left = {packed(p[2 * k][0], p[2 * k][1]), packed(p[2 * k][2], p[2 * k][3]),
                       packed(p[2 * k + 1][0], p[2 * k + 1][1]), packed(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      Four right;
      load_transposed(right, other + k * 16 * Shape<D>::kStride + n * 8);
      multiply(sums[n], left, right[0], right[1]);
      multiply(sums[n + 1], left, right[2], right[3]);
    }
  }
}

template <int N>
__device__ inline void clear(Sums (&sums)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
}

// The lane's two rows of its warp's 16 (half 0 and 1) to memory.
template <int D>
__device__ inline void write_rows(const Sums (&sums)[D / 8], bf16* to, std::int64_t stride, int count,
                                  const float (&factor)[2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + lane / 4 + half * 8;
    if (row >= count) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + row * stride + n * 8 + lane % 4 * 2) =
          packed(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]);
    }
  }
}

// The lane's query rows of a tile: whether they are there at all, and what they see of either set.
struct MyRows {
  std::int64_t row[2];
  bool there[2];
  Range seen[2][2];  // [set][half]
  __device__ MyRows(const QueryTile& tile, const Attention& a) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = warp * 16 + lane / 4 + half * 8;
      there[half] = r < tile.rows;
      row[half] = tile.first_row + (there[half] ? r : 0);
#pragma unroll
      for (int set = 0; set < 2; ++set) seen[set][half] = there[half] ? seen_by(a, set, row[half]) : Range{};
    }
  }
  // Chosen by a condition: an index known only while running would move `seen` to memory.
  __device__ Range range(int set, int half) const { return set == 0 ? seen[0][half] : seen[1][half]; }
};

// One softmax while scores come in: the exponents are in base 2.
template <int D>
struct Online {
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

  // Scores become weights relative to the new top, sums fade to it.
  __device__ void take(Sums (&s)[8], Sums (&sums)[D / 8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float higher = top[half];
#pragma unroll
      for (int n = 0; n < 8; ++n) higher = fmaxf(higher, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 1));
      higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 2));
      const float base = higher == -INFINITY ? 0.f : higher, fade = power_of_two(top[half] - base);
      top[half] = higher;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[n][i] = power_of_two(s[n][i] - base);
          sum += s[n][i];
        }
      }
      total[half] = total[half] * fade + sum;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        sums[n][2 * half] *= fade;
        sums[n][2 * half + 1] *= fade;
      }
    }
  }
  __device__ void finish() {
#pragma unroll
    for (float& sum : total) {
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    }
  }
};

// The key tiles that a tile of queries needs, context first; they come two at a time into shared memory, one worked on, one
// on its way.
template <int D>
struct KeyWalk {
  const Attention& a;
  const QueryTile& tile;
  std::int64_t column;
  bf16* buffers;  // k, v, k, v
  int context_steps, steps;

  __device__ KeyWalk(const Attention& attention, const QueryTile& query_tile, int head, bf16* memory)
      : a(attention), tile(query_tile), column(head / (a.heads / a.kv_heads) * D), buffers(memory) {
    context_steps = (tile.key_end[0] - tile.key_begin[0] + kTileRows - 1) / kTileRows;
    steps = context_steps + (tile.key_end[1] - tile.key_begin[1] + kTileRows - 1) / kTileRows;
  }
  __device__ int set(int step) const { return step < context_steps ? 0 : 1; }
  __device__ int first(int step) const {
    return set(step) == 0 ? tile.key_begin[0] + step * kTileRows
                          : tile.key_begin[1] + (step - context_steps) * kTileRows;
  }
  __device__ bf16* k(int step) const { return buffers + step % 2 * 2 * Shape<D>::kTile; }
  __device__ bf16* v(int step) const { return k(step) + Shape<D>::kTile; }
  __device__ void copy(int step) const {
    if (step < steps) {
      const Keys& keys = a.keys[set(step)];
      const int from = first(step), count = min(kTileRows, tile.key_end[set(step)] - from);
      copy_tile<D>(k(step), at<bf16>(keys.k, from, keys.k_stride, column), keys.k_stride, count);
      copy_tile<D>(v(step), at<bf16>(keys.v, from, keys.v_stride, column), keys.v_stride, count);
    }
    commit_copies();
  }
};

template <int D>
__global__ __launch_bounds__(kThreads, D <= 64 ? 4 : 2) void forward_kernel(Attention a) {
  extern __shared__ __align__(16) bf16 shared[];
  bf16* q = shared;
  const QueryTile tile = a.query_tiles[blockIdx.x];
  const int head = blockIdx.y, lane = threadIdx.x % 32;
  const std::int64_t column = head * D;
  const KeyWalk<D> walk(a, tile, head, q + Shape<D>::kTile);
  copy_tile<D>(q, at<bf16>(a.q, tile.first_row, a.q_stride, column), a.q_stride, tile.rows);
  walk.copy(0);
  const MyRows mine(tile, a);
  Sums sums[D / 8];
  clear(sums);
  Online<D> online;
  for (int step = 0; step < walk.steps; ++step) {
    walk.copy(step + 1);
    wait_for_all_but_last();
    const Range ranges[2] = {mine.range(walk.set(step), 0), mine.range(walk.set(step), 1)};
    Sums s[8];
    clear(s);
    multiply_rows<D>(s, q, walk.k(step));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = walk.first(step) + n * 8 + lane % 4 * 2 + i % 2;
        s[n][i] = ranges[i / 2].has(key) ? s[n][i] * (a.scale * kLog2e) : -INFINITY;
      }
    }
    online.take(s, sums);
    multiply_values<D>(sums, s, walk.v(step));
    __syncthreads();
  }
  online.finish();
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    factor[half] = online.total[half] > 0 ? 1.f / online.total[half] : 0.f;
    if (lane % 4 == 0 && mine.there[half]) {
      a.lse[mine.row[half] * a.heads + head] = online.top[half] / kLog2e + logf(online.total[half]);
    }
  }
  write_rows<D>(sums, at<bf16>(a.out, tile.first_row, a.out_stride, column), a.out_stride, tile.rows, factor);
}

// delta of the tile's rows, to shared memory and to a.delta for the keys' pass: two lanes per row. dout lies in shared
// memory already.
template <int D>
__device__ inline void find_delta(const Attention& a, const QueryTile& tile, int head, const bf16* dout, float* delta) {
  const int row = threadIdx.x / 2, first = threadIdx.x % 2 * (D / 2);
  float sum = 0;
  if (row < tile.rows) {
    const bf16* out = at<bf16>(a.out, tile.first_row + row, a.out_stride, head * D) + first;
#pragma unroll
    for (int i = 0; i < D / 2; i += 8) {
      const Eight<bf16> x = eight(out, i / 8), y = eight(dout + row * Shape<D>::kStride + first, i / 8);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += load(x.at[j]) * load(y.at[j]);
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (threadIdx.x % 2 != 0) return;
  delta[row] = sum;
  if (row < tile.rows) a.delta[(tile.first_row + row) * a.heads + head] = sum;
}

template <int D>
__global__ __launch_bounds__(kThreads, D <= 64 ? 3 : 2) void query_gradient_kernel(Attention a) {
  __shared__ float deltas[kTileRows];
  extern __shared__ __align__(16) bf16 shared[];
  bf16 *q = shared, *dout = q + Shape<D>::kTile;
  const QueryTile tile = a.query_tiles[blockIdx.x];
  const int head = blockIdx.y, lane = threadIdx.x % 32;
  const std::int64_t column = head * D;
  const KeyWalk<D> walk(a, tile, head, dout + Shape<D>::kTile);
  copy_tile<D>(q, at<bf16>(a.q, tile.first_row, a.q_stride, column), a.q_stride, tile.rows);
  copy_tile<D>(dout, at<bf16>(a.dout, tile.first_row, a.dout_stride, column), a.dout_stride, tile.rows);
  commit_copies();
  walk.copy(0);
  const MyRows mine(tile, a);
  wait_for_all_but_last();
  find_delta<D>(a, tile, head, dout, deltas);
  __syncthreads();
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    lse[half] = a.lse[mine.row[half] * a.heads + head] * kLog2e;
    delta[half] = deltas[mine.row[half] - tile.first_row];
  }
  Sums sums[D / 8];
  clear(sums);
  for (int step = 0; step < walk.steps; ++step) {
    walk.copy(step + 1);
    wait_for_all_but_last();
    const Range ranges[2] = {mine.range(walk.set(step), 0), mine.range(walk.set(step), 1)};
    Sums s[8], dp[8];
    clear(s);
    clear(dp);
    multiply_rows<D>(s, q, walk.k(step));
    multiply_rows<D>(dp, dout, walk.v(step));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = walk.first(step) + n * 8 + lane % 4 * 2 + i % 2;
        const float p = power_of_two(s[n][i] * (a.scale * kLog2e) - lse[i / 2]);
        s[n][i] = ranges[i / 2].has(key) ? p * (dp[n][i] - delta[i / 2]) : 0.f;
      }
    }
    multiply_values<D>(sums, s, walk.k(step));
    __syncthreads();
  }
  const float factor[2] = {a.scale, a.scale};
  write_rows<D>(sums, at<bf16>(a.dq, tile.first_row, a.dq_stride, column), a.dq_stride, tile.rows, factor);
}

// What the key gradients need to know of a query row; the first kTileRows threads have one each.
struct RowFacts {
  float lse = 0, delta = 0;
  Range range;
};

// The query tiles that see a tile of keys, head by head; two at a time, as in KeyWalk. Their facts wait in registers while
// the tile before is worked on.
template <int D>
struct QueryWalk {
  const Attention& a;
  const KeyTile& tile;
  int first_head, row_steps, steps;
  bf16* buffers;  // q, dout, q, dout

  __device__ QueryWalk(const Attention& attention, const KeyTile& key_tile, int kv_head, bf16* memory)
      : a(attention), tile(key_tile), buffers(memory) {
    const int per_group = static_cast<int>(a.heads / a.kv_heads);
    first_head = kv_head * per_group;
    row_steps = (tile.row_end - tile.row_begin + kTileRows - 1) / kTileRows;
    steps = row_steps * per_group;
  }
  __device__ int head(int step) const { return first_head + step / row_steps; }
  __device__ int first(int step) const { return tile.row_begin + step % row_steps * kTileRows; }
  __device__ bf16* q(int step) const { return buffers + step % 2 * 2 * Shape<D>::kTile; }
  __device__ bf16* dout(int step) const { return q(step) + Shape<D>::kTile; }
  __device__ void copy(int step) const {
    if (step < steps) {
      const int from = first(step), count = min(kTileRows, tile.row_end - from);
      copy_tile<D>(q(step), at<bf16>(a.q, from, a.q_stride, head(step) * D), a.q_stride, count);
      copy_tile<D>(dout(step), at<bf16>(a.dout, from, a.dout_stride, head(step) * D), a.dout_stride, count);
    }
    commit_copies();
  }
  __device__ RowFacts facts(int step) const {
    if (step >= steps || threadIdx.x >= kTileRows) return {};
    const std::int64_t row = first(step) + static_cast<int>(threadIdx.x);
    if (row >= tile.row_end) return {};
    return {a.lse[row * a.heads + head(step)] * kLog2e, a.delta[row * a.heads + head(step)], seen_by(a, tile.set, row)};
  }
};

template <int D>
__global__ __launch_bounds__(kThreads, D <= 64 ? 3 : 1) void key_gradient_kernel(Attention a) {
  extern __shared__ __align__(16) bf16 shared[];
  __shared__ RowFacts rows[2][kTileRows];
  bf16 *k = shared, *v = k + Shape<D>::kTile;
  const KeyTile tile = a.key_tiles[blockIdx.x];
  const Keys& keys = a.keys[tile.set];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t kv_column = blockIdx.y * D;
  const QueryWalk<D> walk(a, tile, static_cast<int>(blockIdx.y), v + Shape<D>::kTile);
  copy_tile<D>(k, at<bf16>(keys.k, tile.first_key, keys.k_stride, kv_column), keys.k_stride, tile.keys);
  copy_tile<D>(v, at<bf16>(keys.v, tile.first_key, keys.v_stride, kv_column), keys.v_stride, tile.keys);
  walk.copy(0);
  if (threadIdx.x < kTileRows) rows[0][threadIdx.x] = walk.facts(0);
  Sums dk[D / 8], dv[D / 8];
  clear(dk);
  clear(dv);
  for (int step = 0; step < walk.steps; ++step) {
    walk.copy(step + 1);
    const RowFacts next = walk.facts(step + 1);
    wait_for_all_but_last();
    const RowFacts* facts = rows[step % 2];
    Sums s[8], dp[8];
    clear(s);
    multiply_rows<D>(s, k, walk.q(step));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const RowFacts& row = facts[n * 8 + lane % 4 * 2 + i % 2];
        const int key = tile.first_key + warp * 16 + lane / 4 + i / 2 * 8;
        const float p = power_of_two(s[n][i] * (a.scale * kLog2e) - row.lse);
        s[n][i] = row.range.has(key) ? p : 0.f;
      }
    }
    multiply_values<D>(dv, s, walk.dout(step));
    clear(dp);
    multiply_rows<D>(dp, v, walk.dout(step));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= dp[n][i] - facts[n * 8 + lane % 4 * 2 + i % 2].delta;
    }
    multiply_values<D>(dk, s, walk.q(step));
    if (threadIdx.x < kTileRows) rows[(step + 1) % 2][threadIdx.x] = next;
    __syncthreads();
  }
  const float scaled[2] = {a.scale, a.scale}, whole[2] = {1, 1};
  write_rows<D>(dk, at<bf16>(keys.dk, tile.first_key, keys.dk_stride, kv_column), keys.dk_stride, tile.keys, scaled);
  write_rows<D>(dv, at<bf16>(keys.dv, tile.first_key, keys.dv_stride, kv_column), keys.dv_stride, tile.keys, whole);
}

// Launches a kernel with `tiles` tiles of shared memory.
template <int D>
void launch(void (*kernel)(Attention), const Attention& a, std::int64_t x, std::int64_t y, int tiles,
            cudaStream_t stream) {
  if (x == 0) return;
  const int bytes = tiles * Shape<D>::kTile * static_cast<int>(sizeof(bf16));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)), kThreads, static_cast<std::size_t>(bytes),
           stream>>>(a);
}

template <int D>
void forward(const Attention& a, cudaStream_t stream) {
  launch<D>(forward_kernel<D>, a, a.query_tile_count, a.heads, 5, stream);
}
template <int D>
void backward(const Attention& a, cudaStream_t stream) {
  launch<D>(query_gradient_kernel<D>, a, a.query_tile_count, a.heads, 6, stream);
  launch<D>(key_gradient_kernel<D>, a, a.key_tile_count, a.kv_heads, 6, stream);
}

// Calls body with the head_dim as a type, if it is one of those compiled.
template <class Body>
bool by_head_dim(std::int64_t head_dim, Body body) {
  if (head_dim == 32) return body(std::integral_constant<int, 32>()), true;
  if (head_dim == 64) return body(std::integral_constant<int, 64>()), true;
  if (head_dim == 128) return body(std::integral_constant<int, 128>()), true;
  return false;
}

}  // namespace

bool tensor_attention(const Attention& a, cudaStream_t stream) {
  return by_head_dim(a.head_dim, [&](auto d) { forward<decltype(d)::value>(a, stream); });
}

bool tensor_attention_backward(const Attention& a, cudaStream_t stream) {
  return by_head_dim(a.head_dim, [&](auto d) { backward<decltype(d)::value>(a, stream); });
}

}  // namespace levada::trainkernels::cuda
