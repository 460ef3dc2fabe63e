#include "trainkernels/cuda/attention_rows.cuh"

namespace levada::trainkernels::cuda {
namespace {

// A warp per query head of a row, or per head of a key; a lane has every 32nd column, kColumns at most.
constexpr int kThreads = 256, kWarps = kThreads / 32, kColumns = 8;

struct Lane {
  float x[kColumns] = {};
};
template <class T>
__device__ Lane read(const T* from, int width) {
  Lane lane;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int i = c * 32 + static_cast<int>(threadIdx.x) % 32;
    if (i < width) lane.x[c] = load(from[i]);
  }
  return lane;
}
template <class T>
__device__ void write(T* to, int width, const Lane& lane, float scale) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int i = c * 32 + static_cast<int>(threadIdx.x) % 32;
    if (i < width) store(to[i], lane.x[c] * scale);
  }
}
__device__ float dot(const Lane& a, const Lane& b) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) sum += a.x[c] * b.x[c];
  return warp_sum(sum);
}
__device__ void add(Lane& to, const Lane& x, float factor) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) to.x[c] += x.x[c] * factor;
}

// Where a warp's query head and its keys lie.
struct Place {
  std::int64_t row, head, column, kv_column;
};
__device__ bool place_of(const Attention& a, Place& place) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  place.row = index / a.heads;
  place.head = index % a.heads;
  place.column = place.head * a.head_dim;
  place.kv_column = place.head / (a.heads / a.kv_heads) * a.head_dim;
  return place.row < a.rows;
}

template <class T>
__global__ void forward_kernel(Attention a) {
  Place p;
  if (!place_of(a, p)) return;
  const int width = static_cast<int>(a.head_dim);
  const Lane q = read(at<T>(a.q, p.row, a.q_stride, p.column), width);
  Lane sum;
  float top = -INFINITY, total = 0;
  for (int set = 0; set < 2; ++set) {
    const Range range = seen_by(a, set, p.row);
    for (int key = range.begin; key < range.end; ++key) {
      const float s = a.scale * dot(q, read(at<T>(a.keys[set].k, key, a.keys[set].k_stride, p.kv_column), width));
      const float higher = fmaxf(top, s), fade = expf(top - higher), weight = expf(s - higher);
#pragma unroll
      for (float& x : sum.x) x *= fade;
      add(sum, read(at<T>(a.keys[set].v, key, a.keys[set].v_stride, p.kv_column), width), weight);
      total = total * fade + weight;
      top = higher;
    }
  }
  write(at<T>(a.out, p.row, a.out_stride, p.column), width, sum, total > 0 ? 1.f / total : 0.f);
  if (threadIdx.x % 32 == 0) a.lse[p.row * a.heads + p.head] = top + logf(total);
}

template <class T>
__global__ void delta_kernel(Attention a) {
  Place p;
  if (!place_of(a, p)) return;
  const int width = static_cast<int>(a.head_dim);
  const float sum = dot(read(at<T>(a.out, p.row, a.out_stride, p.column), width),
                        read(at<T>(a.dout, p.row, a.dout_stride, p.column), width));
  if (threadIdx.x % 32 == 0) a.delta[p.row * a.heads + p.head] = sum;
}

// The probability of a score and the gradient of q . k.
struct Slope {
  float p, ds;
};
__device__ Slope slope_of(const Attention& a, const Lane& q, const Lane& k, const Lane& v, const Lane& dout,
                          std::int64_t query) {
  const float p = expf(a.scale * dot(q, k) - a.lse[query]);
  return {p, p * (dot(dout, v) - a.delta[query]) * a.scale};
}

template <class T>
__global__ void query_gradient_kernel(Attention a) {
  Place p;
  if (!place_of(a, p)) return;
  const int width = static_cast<int>(a.head_dim);
  const Lane q = read(at<T>(a.q, p.row, a.q_stride, p.column), width);
  const Lane dout = read(at<T>(a.dout, p.row, a.dout_stride, p.column), width);
  Lane sum;
  for (int set = 0; set < 2; ++set) {
    const Range range = seen_by(a, set, p.row);
    for (int key = range.begin; key < range.end; ++key) {
      const Lane k = read(at<T>(a.keys[set].k, key, a.keys[set].k_stride, p.kv_column), width);
      const Lane v = read(at<T>(a.keys[set].v, key, a.keys[set].v_stride, p.kv_column), width);
      add(sum, k, slope_of(a, q, k, v, dout, p.row * a.heads + p.head).ds);
    }
  }
  write(at<T>(a.dq, p.row, a.dq_stride, p.column), width, sum, 1.f);
}

// A block per key tile and kv head, a warp per key of it.
template <class T>
__global__ void key_gradient_kernel(Attention a) {
  const KeyTile tile = a.key_tiles[blockIdx.x];
  const Keys& keys = a.keys[tile.set];
  const int width = static_cast<int>(a.head_dim);
  const std::int64_t per_group = a.heads / a.kv_heads, kv_column = blockIdx.y * a.head_dim;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < tile.keys; i += kWarps) {
    const int key = tile.first_key + i;
    const Lane k = read(at<T>(keys.k, key, keys.k_stride, kv_column), width);
    const Lane v = read(at<T>(keys.v, key, keys.v_stride, kv_column), width);
    Lane dk, dv;
    for (int row = tile.row_begin; row < tile.row_end; ++row) {
      if (!seen_by(a, tile.set, row).has(key)) continue;
      for (std::int64_t head = blockIdx.y * per_group; head < (blockIdx.y + 1) * per_group; ++head) {
        const Lane q = read(at<T>(a.q, row, a.q_stride, head * a.head_dim), width);
        const Lane dout = read(at<T>(a.dout, row, a.dout_stride, head * a.head_dim), width);
        const Slope slope = slope_of(a, q, k, v, dout, row * a.heads + head);
        add(dk, q, slope.ds);
        add(dv, dout, slope.p);
      }
    }
    write(at<T>(keys.dk, key, keys.dk_stride, kv_column), width, dk, 1.f);
    write(at<T>(keys.dv, key, keys.dv_stride, kv_column), width, dv, 1.f);
  }
}

}  // namespace

void plain_attention(Element type, const Attention& a, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    forward_kernel<std::remove_pointer_t<decltype(t)>>
        <<<blocks_for(a.rows * a.heads, kWarps), kThreads, 0, stream>>>(a);
  });
}

void plain_attention_backward(Element type, const Attention& a, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    delta_kernel<T><<<blocks_for(a.rows * a.heads, kWarps), kThreads, 0, stream>>>(a);
    query_gradient_kernel<T><<<blocks_for(a.rows * a.heads, kWarps), kThreads, 0, stream>>>(a);
    const dim3 grid(static_cast<unsigned>(a.key_tile_count), static_cast<unsigned>(a.kv_heads));
    if (grid.x > 0) key_gradient_kernel<T><<<grid, kThreads, 0, stream>>>(a);
  });
}

}  // namespace levada::trainkernels::cuda
