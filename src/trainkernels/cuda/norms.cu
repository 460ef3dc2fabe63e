#include <algorithm>
#include <type_traits>

#include "trainkernels/cuda/values.cuh"

// A row of a norm belongs to a team: a warp where rows are narrow, else a block; a head of a row to as many lanes as have
// four columns of each of its halves. Lanes keep their columns in registers, so that memory is read once, and the weight's
// gradient of those columns, which is summed over the teams of a block, then over blocks.
namespace levada::trainkernels::cuda {
namespace {

constexpr int kThreads = 256;

// Two neighbours as floats.
__device__ inline float2 pair(const float* x, std::int64_t i) { return *reinterpret_cast<const float2*>(x + i); }
__device__ inline float2 pair(const bf16* x, std::int64_t i) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(x + i));
}
__device__ inline void put_pair(float* x, std::int64_t i, float2 value) { *reinterpret_cast<float2*>(x + i) = value; }
__device__ inline void put_pair(bf16* x, std::int64_t i, float2 value) {
  *reinterpret_cast<__nv_bfloat162*>(x + i) = __float22bfloat162_rn(value);
}
__device__ inline float2 scaled(float2 a, float s) { return {a.x * s, a.y * s}; }
__device__ inline float2 times(float2 a, float2 b) { return {a.x * b.x, a.y * b.y}; }
__device__ inline float2 plus(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }

// Sums over neighbouring lanes; every one gets the sum.
template <int Team>
__device__ inline float team_sum(float x) {
  for (int step = (Team < 32 ? Team : 32) / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  if constexpr (Team > 32) {
    __shared__ float warps[Team / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int i = 0; i < Team / 32; ++i) x += warps[i];
  }
  return x;
}

// Rows [begin, end) of member m when `rows` are dealt to `members`.
__device__ inline std::int64_t share(std::int64_t rows, std::int64_t m, std::int64_t members) {
  return rows * m / members;
}

// Pairs is how many pairs of columns a lane may have.
template <class T, int Team, int Pairs>
__global__ __launch_bounds__(kThreads) void rms_kernel(Norm n, const T* x, const T* w, T* y) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * (kThreads / Team) + threadIdx.x / Team;
  const int lane = threadIdx.x % Team;
  if (r >= n.rows) return;  // whole teams
  float2 values[Pairs];
  float sum = 0;
#pragma unroll
  for (int p = 0; p < Pairs; ++p) {
    const std::int64_t i = (p * Team + lane) * 2;
    values[p] = i < n.width ? pair(x, r * n.width + i) : float2{};
    sum += values[p].x * values[p].x + values[p].y * values[p].y;
  }
  const float inverse = 1.f / sqrtf(team_sum<Team>(sum) / static_cast<float>(n.width) + n.eps);
#pragma unroll
  for (int p = 0; p < Pairs; ++p) {
    const std::int64_t i = (p * Team + lane) * 2;
    if (i >= n.width) continue;
    const float2 normed = {rounded<T>(values[p].x * inverse), rounded<T>(values[p].y * inverse)};
    put_pair(y, r * n.width + i, times(normed, pair(w, i)));
  }
}

template <class T, int Team, int Pairs>
__global__ __launch_bounds__(kThreads) void rms_backward_kernel(Norm n, const T* x, const T* w, const T* dy,
                                                                bool accumulate, T* dx, float* partial) {
  constexpr int kTeams = kThreads / Team;
  const int lane = threadIdx.x % Team;
  const std::int64_t team = static_cast<std::int64_t>(blockIdx.x) * kTeams + threadIdx.x / Team;
  const std::int64_t teams = static_cast<std::int64_t>(gridDim.x) * kTeams;
  float2 sums[Pairs] = {};
  for (std::int64_t r = share(n.rows, team, teams); r < share(n.rows, team + 1, teams); ++r) {
    float2 values[Pairs], grads[Pairs];
    float squares = 0, dot = 0;
#pragma unroll
    for (int p = 0; p < Pairs; ++p) {
      const std::int64_t i = (p * Team + lane) * 2;
      const bool there = i < n.width;
      values[p] = there ? pair(x, r * n.width + i) : float2{};
      grads[p] = there ? pair(dy, r * n.width + i) : float2{};
      const float2 through = there ? times(times(values[p], grads[p]), pair(w, i)) : float2{};
      squares += values[p].x * values[p].x + values[p].y * values[p].y;
      dot += through.x + through.y;
    }
    const float inverse = 1.f / sqrtf(team_sum<Team>(squares) / static_cast<float>(n.width) + n.eps);
    const float back = team_sum<Team>(dot) * inverse * inverse * inverse / static_cast<float>(n.width);
#pragma unroll
    for (int p = 0; p < Pairs; ++p) {
      const std::int64_t i = (p * Team + lane) * 2, at = r * n.width + i;
      if (i >= n.width) continue;
      sums[p] = plus(sums[p], times(grads[p], scaled(values[p], inverse)));
      const float2 through = plus(scaled(times(grads[p], pair(w, i)), inverse), scaled(values[p], -back));
      put_pair(dx, at, accumulate ? plus(pair(dx, at), through) : through);
    }
  }
  extern __shared__ float shared[];  // [teams of the block][width]
#pragma unroll
  for (int p = 0; p < Pairs; ++p) {
    const std::int64_t i = (p * Team + lane) * 2;
    if (i < n.width) put_pair(shared, threadIdx.x / Team * n.width + i, sums[p]);
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < n.width; i += kThreads) {
    float total = 0;
    for (int part = 0; part < kTeams; ++part) total += shared[part * n.width + i];
    partial[blockIdx.x * n.width + i] = total;
  }
}

// out[i] += sum over rows of partial[row][i]: a block per 32 columns, its warps each a share of the rows.
__global__ void add_partials_kernel(const float* partial, std::int64_t rows, std::int64_t width, float* out) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float sums[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t i = blockIdx.x * 32 + lane;
  float sum = 0;
  if (i < width) {
    for (std::int64_t r = warp; r < rows; r += kWarps) sum += partial[r * width + i];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= width) return;
  float total = 0;
  for (int part = 0; part < kWarps; ++part) total += sums[part][lane];
  out[i] += total;
}

// Four neighbours as floats.
struct Four {
  float at[4] = {};
};
__device__ inline Four four(const float* x) {
  const float4 value = *reinterpret_cast<const float4*>(x);
  return {{value.x, value.y, value.z, value.w}};
}
__device__ inline Four four(const bf16* x) {
  const float2 low = pair(x, 0), high = pair(x, 2);
  return {{low.x, low.y, high.x, high.y}};
}
__device__ inline void put_four(float* x, const Four& v) {
  *reinterpret_cast<float4*>(x) = {v.at[0], v.at[1], v.at[2], v.at[3]};
}
__device__ inline void put_four(bf16* x, const Four& v) {
  put_pair(x, 0, {v.at[0], v.at[1]});
  put_pair(x, 2, {v.at[2], v.at[3]});
}

// What a lane has of a head: columns [column, + 4) of both halves.
struct Place {
  std::int64_t row, head, column, half;
  bool there;
};
template <int Team>
__device__ inline Place place_of(const Heads& s, std::int64_t index) {
  Place p;
  p.row = index / s.heads;
  p.head = index % s.heads;
  p.half = s.head_dim / 2;
  p.column = threadIdx.x % Team * 4;
  p.there = p.column < p.half && p.row < s.rows;
  return p;
}
template <class T>
__device__ inline Four half_of(const T* x, const Place& p, std::int64_t stride, std::int64_t head_dim, int side) {
  if (!p.there) return {};
  return four(x + p.row * stride + p.head * head_dim + side * p.half + p.column);
}
__device__ inline float dot(const Four& a, const Four& b) {
  return a.at[0] * b.at[0] + a.at[1] * b.at[1] + a.at[2] * b.at[2] + a.at[3] * b.at[3];
}

template <class T, int Team>
__global__ __launch_bounds__(kThreads) void norm_rope_kernel(Heads s, const T* x, const T* w, T* out,
                                                             std::int64_t out_stride) {
  const Place p = place_of<Team>(s, static_cast<std::int64_t>(blockIdx.x) * (kThreads / Team) + threadIdx.x / Team);
  const Four a = half_of(x, p, s.stride, s.head_dim, 0), b = half_of(x, p, s.stride, s.head_dim, 1);
  const float inverse = 1.f / sqrtf(team_sum<Team>(dot(a, a) + dot(b, b)) / static_cast<float>(s.head_dim) + s.eps);
  if (!p.there) return;
  const Four wa = four(w + p.column), wb = four(w + p.half + p.column);
  const Four cos = four(s.cos_sin + p.row * s.head_dim + p.column);
  const Four sin = four(s.cos_sin + p.row * s.head_dim + p.half + p.column);
  Four low, high;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float first = a.at[i] * inverse * wa.at[i], second = b.at[i] * inverse * wb.at[i];
    low.at[i] = first * cos.at[i] - second * sin.at[i];
    high.at[i] = second * cos.at[i] + first * sin.at[i];
  }
  T* to = out + p.row * out_stride + p.head * s.head_dim + p.column;
  put_four(to, low);
  put_four(to + p.half, high);
}

// Gradients of one lane's columns: dx is written, the weight's added to `sums`.
template <class T, int Team>
__device__ inline void rope_back(const Heads& s, const Place& p, const T* x, const Four (&w)[2], const T* dout,
                                 std::int64_t dout_stride, T* dx, Four (&sums)[2]) {
  const Four value[2] = {half_of(x, p, s.stride, s.head_dim, 0), half_of(x, p, s.stride, s.head_dim, 1)};
  const Four grad[2] = {half_of(dout, p, dout_stride, s.head_dim, 0), half_of(dout, p, dout_stride, s.head_dim, 1)};
  Four turned[2];
  float through = 0;
  if (p.there) {
    const Four cos = four(s.cos_sin + p.row * s.head_dim + p.column);
    const Four sin = four(s.cos_sin + p.row * s.head_dim + p.half + p.column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      turned[0].at[i] = grad[0].at[i] * cos.at[i] + grad[1].at[i] * sin.at[i];
      turned[1].at[i] = grad[1].at[i] * cos.at[i] - grad[0].at[i] * sin.at[i];
      through += value[0].at[i] * turned[0].at[i] * w[0].at[i] + value[1].at[i] * turned[1].at[i] * w[1].at[i];
    }
  }
  const float squares = team_sum<Team>(dot(value[0], value[0]) + dot(value[1], value[1]));
  const float inverse = 1.f / sqrtf(squares / static_cast<float>(s.head_dim) + s.eps);
  const float back = team_sum<Team>(through) * inverse * inverse * inverse / static_cast<float>(s.head_dim);
  if (!p.there) return;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    Four result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[side].at[i] += turned[side].at[i] * value[side].at[i] * inverse;
      result.at[i] = turned[side].at[i] * w[side].at[i] * inverse - value[side].at[i] * back;
    }
    put_four(dx + p.row * s.stride + p.head * s.head_dim + side * p.half + p.column, result);
  }
}

template <class T, int Team>
__global__ __launch_bounds__(kThreads) void norm_rope_backward_kernel(Heads s, const T* x, const T* w, const T* dout,
                                                                      std::int64_t dout_stride, T* dx, float* partial) {
  constexpr int kTeams = kThreads / Team;
  __shared__ float shared[kTeams * Team * 8];  // [team][head_dim]
  const std::int64_t count = s.rows * s.heads, half = s.head_dim / 2, column = threadIdx.x % Team * 4;
  const bool mine = column < half;
  const Four weights[2] = {mine ? four(w + column) : Four(), mine ? four(w + half + column) : Four()};
  Four sums[2];
  // All teams of a block go on together: sums over lanes take part of the whole warp.
  const std::int64_t begin = share(count, blockIdx.x, gridDim.x), end = share(count, blockIdx.x + 1, gridDim.x);
  for (std::int64_t first = begin; first < end; first += kTeams) {
    const std::int64_t index = first + threadIdx.x / Team;
    Place p = place_of<Team>(s, index);
    p.there = p.there && index < end;
    rope_back<T, Team>(s, p, x, weights, dout, dout_stride, dx, sums);
  }
  if (mine) {
    put_four(shared + threadIdx.x / Team * s.head_dim + column, sums[0]);
    put_four(shared + threadIdx.x / Team * s.head_dim + half + column, sums[1]);
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < s.head_dim; i += kThreads) {
    float total = 0;
    for (int part = 0; part < kTeams; ++part) total += shared[part * s.head_dim + i];
    partial[blockIdx.x * s.head_dim + i] = total;
  }
}

void add_partials(const float* partial, std::int64_t rows, std::int64_t width, float* out, cudaStream_t stream) {
  add_partials_kernel<<<blocks_for(width, 32), kThreads, 0, stream>>>(partial, rows, width, out);
}

int partial_rows(std::int64_t teams) { return static_cast<int>(std::clamp<std::int64_t>(teams, 1, kPartialRows)); }

// Calls body with the team's lanes and a lane's pairs as types, for rows of up to kMostColumns.
template <class Body>
void by_width(std::int64_t width, Body body) {
  using std::integral_constant;
  if (width <= 576) return body(integral_constant<int, 32>(), integral_constant<int, 9>());
  if (width <= 1024) return body(integral_constant<int, 32>(), integral_constant<int, 16>());
  if (width <= 4096) return body(integral_constant<int, kThreads>(), integral_constant<int, 8>());
  body(integral_constant<int, kThreads>(), integral_constant<int, 16>());
}
static_assert(kMostColumns == kThreads * 2 * 16);

template <class Body>
void by_head_dim(std::int64_t head_dim, Body body) {
  if (head_dim <= 64) return body(std::integral_constant<int, 8>());
  if (head_dim <= 128) return body(std::integral_constant<int, 16>());
  body(std::integral_constant<int, 32>());
}

}  // namespace

void rms(Element type, const Norm& n, const void* x, const void* w, void* y, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    by_width(n.width, [&](auto team, auto pairs) {
      rms_kernel<std::remove_pointer_t<decltype(t)>, team(), pairs()>
          <<<blocks_for(n.rows, kThreads / team()), kThreads, 0, stream>>>(n, in(x, t), in(w, t), out(y, t));
    });
  });
}

void rms_backward(Element type, const Norm& n, const void* x, const void* w, const void* dy, bool accumulate, void* dx,
                  float* dw, float* partial, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    by_width(n.width, [&](auto team, auto pairs) {
      constexpr int kTeams = kThreads / team();
      const int blocks = partial_rows(n.rows / kTeams);
      rms_backward_kernel<std::remove_pointer_t<decltype(t)>, team(), pairs()>
          <<<blocks, kThreads, static_cast<std::size_t>(kTeams * n.width) * sizeof(float), stream>>>(
              n, in(x, t), in(w, t), in(dy, t), accumulate, out(dx, t), partial);
      add_partials(partial, blocks, n.width, dw, stream);
    });
  });
}

void norm_rope(Element type, const Heads& s, const void* x, const void* w, void* to, std::int64_t stride,
               cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    by_head_dim(s.head_dim, [&](auto team) {
      norm_rope_kernel<std::remove_pointer_t<decltype(t)>, team()>
          <<<blocks_for(s.rows * s.heads, kThreads / team()), kThreads, 0, stream>>>(s, in(x, t), in(w, t), out(to, t),
                                                                                     stride);
    });
  });
}

void norm_rope_backward(Element type, const Heads& s, const void* x, const void* w, const void* dout,
                        std::int64_t stride, void* dx, float* dw, float* partial, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    by_head_dim(s.head_dim, [&](auto team) {
      const int blocks = partial_rows(s.rows * s.heads / (kThreads / team()));
      norm_rope_backward_kernel<std::remove_pointer_t<decltype(t)>, team()>
          <<<blocks, kThreads, 0, stream>>>(s, in(x, t), in(w, t), in(dout, t), stride, out(dx, t), partial);
      add_partials(partial, blocks, s.head_dim, dw, stream);
    });
  });
}

}  // namespace levada::trainkernels::cuda
