#include <algorithm>
#include <string>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;
constexpr int kMaxGroup = 8;
constexpr int kMaxSplits = 32;
constexpr int kWantedBlocks = 132 * 4;
constexpr float kLog2e = 1.4426950408889634f;

struct Where {
  AttentionRows rows;
  int page_size, kv_heads, splits;
  std::int64_t q_stride, kv_stride;  // of a row; of a token in the planes
  float scale_log2, v_scale;
  const float* page_scales;  // or null
  float* partial;
  std::uint32_t* counters;
};

__device__ inline std::int64_t slot_of(const std::int32_t* table, int token, int page_size) {
  const int page = token / page_size;
  return static_cast<std::int64_t>(__ldcg(table + page)) * page_size + (token - page * page_size);
}

// What a token's key and value are multiplied by besides the scales of all pages.
template <bool kByPage>
__device__ inline float2 scales_of(const Where& where, const std::int32_t* table, int token) {
  if constexpr (!kByPage) return {1.0f, 1.0f};
  const std::int64_t page = __ldcg(table + token / where.page_size);
  return __ldcg(reinterpret_cast<const float2*>(where.page_scales + page * kPageScales));
}

// Merges the softmax state (m, l) with weight 2^m of another one into this one's.
struct Softmax {
  float m = -INFINITY, l = 0;
  // Factors by which the two accumulators are multiplied.
  __device__ float2 merge(float other_m, float other_l) {
    const float top = fmaxf(m, other_m);
    const float mine = m == -INFINITY ? 0.0f : exp2f(m - top),
                theirs = other_m == -INFINITY ? 0.0f : exp2f(other_m - top);
    m = top;
    l = l * mine + other_l * theirs;
    return {mine, theirs};
  }
};

__device__ inline int start_of(const AttentionRows& rows, int row) {
  return rows.starts == nullptr ? 0 : __ldcg(rows.starts + row);
}

// Block (row, kv head, split): all query heads of one kv head over one part of the row's tokens. A team of D/8 lanes reads
// a token in 16-byte packs; the teams of the block take turns over the tokens, kAhead of them at a time.
template <class T, class Kv, bool kByPage, int D, int G>
__global__ void __launch_bounds__(32 * kWarps)
    split_kernel(const T* q, const Kv* k_plane, const Kv* v_plane, T* out, Where where) {
  constexpr int kPack = 8, kTeam = D / kPack, kTeams = 32 * kWarps / kTeam, kAhead = 4;
  const int row = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y),
            split = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % kTeam, team = static_cast<int>(threadIdx.x) / kTeam;
  __shared__ float shared_acc[kWarps][G][D];
  __shared__ float shared_m[kWarps][G], shared_l[kWarps][G];
  __shared__ bool is_last;
  let_successors_start();

  // AttentionRows: no predecessor that may still run writes these.
  const int start = start_of(where.rows, row), length = max(0, __ldcg(where.rows.lengths + row) - start);
  const std::int32_t* table = where.rows.block_tables + __ldcg(where.rows.table_first + row);
  // Short rows take fewer splits than the grid has: whole rounds each, and nobody waits for an empty one.
  constexpr int kRound = kTeams * kAhead;
  const int part = ((length + where.splits - 1) / where.splits + kRound - 1) / kRound * kRound;
  const int splits = length > 0 ? (length + part - 1) / part : 1;
  if (split >= splits) return;
  const int begin = start + split * part, end = min(begin + part, start + length);
  const auto place_of = [&](int token) {
    return slot_of(table, min(token, end - 1), where.page_size) * where.kv_stride + kv_head * D + lane * kPack;
  };
#pragma unroll
  for (int a = 0; a < kAhead; ++a) {
    if (lane % 2 != 0 || length == 0) break;  // 32 bytes each
    const std::int64_t at = place_of(begin + a * kTeams + team);
    bring_near(k_plane + at);
    bring_near(v_plane + at);
  }
  wait_for_predecessors();

  float query[G][kPack], acc[G][kPack];
  Softmax state[G];
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const Pack<T> pack = load_fresh(q + row * where.q_stride + (kv_head * G + g) * D + lane * kPack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      query[g][i] = widen(pack.at[i]) * where.scale_log2;
      acc[g][i] = 0;
    }
  }
  // Every lane of a warp runs the same number of rounds: the sums below are over whole warps.
  for (int first = begin; first < end; first += kTeams * kAhead) {
    Octet<Kv> keys[kAhead], values[kAhead];
    float2 scales[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const std::int64_t at = place_of(first + a * kTeams + team);
      keys[a] = load_octet(k_plane + at);
      values[a] = load_octet(v_plane + at);
      scales[a] = scales_of<kByPage>(where, table, min(first + a * kTeams + team, end - 1));
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
      float score[kAhead];
      float top = -INFINITY;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kPack; ++i) sum += query[g][i] * widen(keys[a].at[i]);
#pragma unroll
        for (int offset = kTeam / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        score[a] = first + a * kTeams + team < end ? sum * scales[a].x : -INFINITY;
        top = fmaxf(top, score[a]);
      }
      const float base = top == -INFINITY ? 0.0f : top;
      float weight[kAhead], total = 0;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        weight[a] = exp2f(score[a] - base);
        total += weight[a];
        weight[a] *= scales[a].y;
      }
      const float2 factor = state[g].merge(top, total);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        float sum = 0;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) sum += weight[a] * widen(values[a].at[i]);
        acc[g][i] = acc[g][i] * factor.x + sum * factor.y;
      }
    }
  }
  // Teams of a warp, then the warps of the block.
#pragma unroll
  for (int g = 0; g < G; ++g) {
#pragma unroll
    for (int offset = kTeam; offset < 32; offset *= 2) {
      const float2 factor = state[g].merge(__shfl_xor_sync(0xffffffffu, state[g].m, offset),
                                           __shfl_xor_sync(0xffffffffu, state[g].l, offset));
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, acc[g][i], offset);
        acc[g][i] = acc[g][i] * factor.x + other * factor.y;
      }
    }
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (static_cast<int>(threadIdx.x) % 32 < kTeam) {
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) shared_acc[warp][g][lane * kPack + i] = acc[g][i];
      if (lane == 0) {
        shared_m[warp][g] = state[g].m;
        shared_l[warp][g] = state[g].l;
      }
    }
  }
  __syncthreads();

  const std::int64_t pair = static_cast<std::int64_t>(row) * where.kv_heads + kv_head;
  float* mine = where.partial + (pair * where.splits + split) * G * (D + 2);
  for (int at = static_cast<int>(threadIdx.x); at < G * D; at += 32 * kWarps) {
    const int g = at / D, d = at % D;
    Softmax sum{shared_m[0][g], shared_l[0][g]};
    float value = shared_acc[0][g][d];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      const float2 factor = sum.merge(shared_m[w][g], shared_l[w][g]);
      value = value * factor.x + shared_acc[w][g][d] * factor.y;
    }
    if (splits == 1) {
      out[(static_cast<std::int64_t>(row) * where.kv_heads * G + kv_head * G + g) * D + d] =
          narrow<T>(sum.l > 0 ? value / sum.l * where.v_scale : 0.0f);
    } else {
      float* slot = mine + g * (D + 2);
      slot[d] = value;
      if (d == 0) {
        slot[D] = sum.m;
        slot[D + 1] = sum.l;
      }
    }
  }
  if (splits == 1) return;

  // The split that arrives last merges all of them, in their order.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(where.counters + pair, 1u) + 1 == static_cast<unsigned>(splits);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const float* all = where.partial + pair * where.splits * G * (D + 2);
  for (int at = static_cast<int>(threadIdx.x); at < G * D; at += 32 * kWarps) {
    const int g = at / D, d = at % D;
    Softmax sum;
    float value = 0;
    for (int s = 0; s < splits; ++s) {
      const float* slot = all + (s * G + g) * (D + 2);
      const float2 factor = sum.merge(__ldcg(slot + D), __ldcg(slot + D + 1));
      value = value * factor.x + __ldcg(slot + d) * factor.y;
    }
    out[(static_cast<std::int64_t>(row) * where.kv_heads * G + kv_head * G + g) * D + d] =
        narrow<T>(sum.l > 0 ? value / sum.l * where.v_scale : 0.0f);
  }
  if (threadIdx.x == 0) where.counters[pair] = 0;
}

// Block (row, head), any head_dim: scores of a tile of tokens, then their values. Plain, for what has no faster kernel.
template <class T, class Kv, bool kByPage>
__global__ void plain_kernel(const T* q, const Kv* k_plane, const Kv* v_plane, T* out, Where where, int head_dim,
                             int group) {
  constexpr int kTile = 128;
  __shared__ float score[kTile];
  __shared__ float query[kMaxHeadDim];
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), kv_head = head / group;
  const int thread = static_cast<int>(threadIdx.x), heads = static_cast<int>(gridDim.y);
  let_successors_start();
  wait_for_predecessors();
  const int length = __ldcg(where.rows.lengths + row);
  const std::int32_t* table = where.rows.block_tables + __ldcg(where.rows.table_first + row);
  for (int d = thread; d < head_dim; d += kTile) {
    query[d] = widen(q[row * where.q_stride + static_cast<std::int64_t>(head) * head_dim + d]) * where.scale_log2;
  }
  __syncthreads();
  Softmax state;
  float acc[kMaxHeadDim / kTile] = {};
  for (int first = start_of(where.rows, row); first < length; first += kTile) {
    const int count = min(kTile, length - first);
    if (thread < count) {
      const Kv* key = k_plane + slot_of(table, first + thread, where.page_size) * where.kv_stride + kv_head * head_dim;
      float sum = 0;
      for (int d = 0; d < head_dim; ++d) sum += query[d] * widen(key[d]);
      score[thread] = sum * scales_of<kByPage>(where, table, first + thread).x;
    }
    __syncthreads();
    float top = -INFINITY, total = 0;
    for (int t = 0; t < count; ++t) top = fmaxf(top, score[t]);
    for (int t = 0; t < count; ++t) total += exp2f(score[t] - top);
    const float2 factor = state.merge(top, total);
    for (int part = 0; part * kTile + thread < head_dim; ++part) {
      float sum = 0;
      for (int t = 0; t < count; ++t) {
        const std::int64_t at = slot_of(table, first + t, where.page_size) * where.kv_stride + kv_head * head_dim;
        sum += exp2f(score[t] - top) * scales_of<kByPage>(where, table, first + t).y *
               widen(v_plane[at + part * kTile + thread]);
      }
      acc[part] = acc[part] * factor.x + sum * factor.y;
    }
    __syncthreads();
  }
  for (int part = 0; part * kTile + thread < head_dim; ++part) {
    out[(static_cast<std::int64_t>(row) * heads + head) * head_dim + part * kTile + thread] =
        narrow<T>(state.l > 0 ? acc[part] / state.l * where.v_scale : 0.0f);
  }
}

template <class T, class Kv, bool kByPage>
struct Call {
  const T* q;
  const Kv *k_plane, *v_plane;
  T* out;
  Where where;
  unsigned rows;
  cudaStream_t stream;

  template <int D, int G>
  Status split() const {
    const Grid grid{dim3(rows, static_cast<unsigned>(where.kv_heads), static_cast<unsigned>(where.splits)),
                    32 * kWarps};
    return launch("paged attention", split_kernel<T, Kv, kByPage, D, G>, grid, stream, q, k_plane, v_plane, out, where);
  }
  template <int D>
  Status split(int group) const {
    switch (group) {
      case 1: return split<D, 1>();
      case 2: return split<D, 2>();
      case 3: return split<D, 3>();
      case 4: return split<D, 4>();
      case 8: return split<D, 8>();
      default: return plain(D, group);
    }
  }
  Status plain(int head_dim, int group) const {
    const Grid grid{dim3(rows, static_cast<unsigned>(where.kv_heads * group)), 128};
    return launch("paged attention", plain_kernel<T, Kv, kByPage>, grid, stream, q, k_plane, v_plane, out, where,
                  head_dim, group);
  }
};

}  // namespace

Result<std::unique_ptr<PagedAttention>> PagedAttention::create(device::Device& device, int heads, int kv_heads,
                                                               int head_dim, int max_split_rows) {
  LEVADA_CHECK(heads % kv_heads == 0 && head_dim <= kMaxHeadDim, "heads is a multiple of kv_heads, head_dim <= 256");
  std::unique_ptr<PagedAttention> attention(new PagedAttention(heads, kv_heads, head_dim, max_split_rows));
  // Splits fall with the rows, so that the blocks stay about as many: what is needed is bounded by both.
  const std::size_t pairs = static_cast<std::size_t>(max_split_rows) * static_cast<std::size_t>(kv_heads);
  const std::size_t blocks = std::max<std::size_t>(2 * pairs, kWantedBlocks + pairs);
  const std::size_t floats = std::min(pairs * kMaxSplits, blocks) * static_cast<std::size_t>(heads / kv_heads) *
                             static_cast<std::size_t>(head_dim + 2);
  LEVADA_ASSIGN_OR_RETURN(attention->partial_, device.allocate(floats * sizeof(float)));
  LEVADA_ASSIGN_OR_RETURN(attention->counters_, device.allocate(pairs * sizeof(std::uint32_t)));
  return std::move(attention);  // nvcc doesn't move by itself into a Result
}

Status PagedAttention::run(const TensorView& q, const AttentionRows& rows, const TensorView& k_plane,
                           const TensorView& v_plane, float scale, const TensorView& out, cudaStream_t stream,
                           const KvScales& scales) {
  const std::int64_t count = q.shape[0];
  const bool narrow_kv = k_plane.dtype == DType::kF8E4M3;
  LEVADA_RETURN_IF_ERROR(expect(is_activation(q.dtype) && (k_plane.dtype == q.dtype || narrow_kv) &&
                                    v_plane.dtype == k_plane.dtype && out.dtype == q.dtype,
                                "paged attention", "q and out have one float type, the planes that or f8"));
  LEVADA_RETURN_IF_ERROR(expect(q.rank == 3 && q.shape[1] == heads_ && q.shape[2] == head_dim_ && out.rank == 2 &&
                                    out.shape[0] == count && out.shape[1] == std::int64_t{heads_} * head_dim_,
                                "paged attention", "q [R, heads, head_dim], out [R, heads * head_dim]"));
  LEVADA_RETURN_IF_ERROR(
      expect(k_plane.rank == 4 && k_plane.shape == v_plane.shape && k_plane.shape[2] == kv_heads_ &&
                 k_plane.shape[3] == head_dim_ && k_plane.strides[2] == head_dim_ &&
                 k_plane.strides[0] == k_plane.strides[1] * k_plane.shape[1] && k_plane.strides == v_plane.strides,
             "paged attention", "planes [pages, page_size, kv_heads, head_dim], tokens may be strided"));
  LEVADA_RETURN_IF_ERROR(check_scales(scales, k_plane, "paged attention"));
  if (count == 0) return {};
  // A row's splits depend on the rows alone, never on their lengths: the same grid serves every step of a graph.
  const std::int64_t pairs = count * kv_heads_;
  const bool may_split = count <= max_split_rows_;
  const auto splits = static_cast<int>(may_split ? std::clamp<std::int64_t>(kWantedBlocks / pairs, 1, kMaxSplits) : 1);
  const Where where{rows,
                    static_cast<int>(k_plane.shape[1]),
                    kv_heads_,
                    splits,
                    q.strides[0],
                    k_plane.strides[1],
                    scale * kLog2e * scales.k,
                    scales.v,
                    scales.page.as<const float>(),
                    static_cast<float*>(partial_->data()),
                    static_cast<std::uint32_t*>(counters_->data())};
  const auto run_over = [&]<class T, class Kv, bool kByPage>(T, Kv, std::bool_constant<kByPage>) {
    const Call<T, Kv, kByPage> call{q.as<const T>(),
                                    k_plane.as<const Kv>(),
                                    v_plane.as<const Kv>(),
                                    out.as<T>(),
                                    where,
                                    static_cast<unsigned>(count),
                                    stream};
    const int group = heads_ / kv_heads_;
    if constexpr (sizeof(T) == 2) {
      if (head_dim_ == 64) return call.template split<64>(group);
      if (head_dim_ == 128) return call.template split<128>(group);
    }
    return call.plain(head_dim_, group);
  };
  const auto run = [&]<class T>(T number) {
    if (!narrow_kv) return run_over(number, number, std::false_type{});
    return scales.by_page() ? run_over(number, F8{}, std::true_type{}) : run_over(number, F8{}, std::false_type{});
  };
  switch (q.dtype) {
    case DType::kBF16: return run(Bf16{});
    case DType::kF16: return run(F16{});
    default: return run(float{});
  }
}

}  // namespace levada::kernels::cuda
