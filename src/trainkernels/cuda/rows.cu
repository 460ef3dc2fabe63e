#include <algorithm>
#include <cmath>

#include "trainkernels/cuda/values.cuh"

namespace levada::trainkernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
__device__ float inverse_rms(const T* x, std::int64_t width, float eps) {
  float sum = 0;
  for (std::int64_t i = threadIdx.x % 32; i < width; i += 32) sum += load(x[i]) * load(x[i]);
  return 1.f / sqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// A warp per row.
template <class T>
__global__ void rms_kernel(Norm n, const T* x, const T* w, T* y) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (r >= n.rows) return;
  const T* row = x + r * n.width;
  const float inverse = inverse_rms(row, n.width, n.eps);
  for (std::int64_t i = threadIdx.x % 32; i < n.width; i += 32) {
    store(y[r * n.width + i], rounded<T>(load(row[i]) * inverse) * load(w[i]));
  }
}

// Rows [begin, end) of block b when `rows` are dealt to `blocks`.
__device__ inline std::int64_t share(std::int64_t rows, std::int64_t b, std::int64_t blocks) {
  return rows * b / blocks;
}

// A block takes neighbouring rows: first a warp per row for dx, then a thread per column for dw, kRows at a time so that
// the second reading finds them in the cache.
constexpr int kRows = 32;
template <class T>
__global__ void rms_backward_kernel(Norm n, const T* x, const T* w, const T* dy, bool accumulate, T* dx,
                                    float* partial) {
  __shared__ float inverses[kRows];
  const std::int64_t begin = share(n.rows, blockIdx.x, gridDim.x), end = share(n.rows, blockIdx.x + 1, gridDim.x);
  float* sums = partial + blockIdx.x * n.width;
  for (std::int64_t i = threadIdx.x; i < n.width; i += kThreads) sums[i] = 0;
  const int lane = threadIdx.x % 32;
  for (std::int64_t first = begin; first < end; first += kRows) {
    const std::int64_t last = min(end, first + kRows);
    for (std::int64_t r = first + threadIdx.x / 32; r < last; r += kWarps) {
      const T *row = x + r * n.width, *grad = dy + r * n.width;
      const float inverse = inverse_rms(row, n.width, n.eps);
      if (lane == 0) inverses[r - first] = inverse;
      float dot = 0;
      for (std::int64_t i = lane; i < n.width; i += 32) dot += load(row[i]) * load(grad[i]) * load(w[i]);
      const float back = warp_sum(dot) * inverse * inverse * inverse / static_cast<float>(n.width);
      T* to = dx + r * n.width;
      for (std::int64_t i = lane; i < n.width; i += 32) {
        const float through = load(grad[i]) * load(w[i]) * inverse - load(row[i]) * back;
        store(to[i], accumulate ? load(to[i]) + through : through);
      }
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < n.width; i += kThreads) {
      float sum = 0;
      for (std::int64_t r = first; r < last; ++r) {
        sum += load(dy[r * n.width + i]) * (load(x[r * n.width + i]) * inverses[r - first]);
      }
      sums[i] += sum;
    }
    __syncthreads();
  }
}

// out[i] += sum over rows of partial[row][i]: a block per 32 columns, its warps each a share of the rows.
__global__ void add_partials_kernel(const float* partial, std::int64_t rows, std::int64_t width, float* out) {
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

void add_partials(const float* partial, std::int64_t rows, std::int64_t width, float* out, cudaStream_t stream) {
  add_partials_kernel<<<blocks_for(width, 32), kThreads, 0, stream>>>(partial, rows, width, out);
}

// A warp per head of a row.
template <class T>
__global__ void norm_rope_kernel(Heads s, const T* x, const T* w, T* out, std::int64_t out_stride) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const std::int64_t r = at / s.heads, h = at % s.heads, half = s.head_dim / 2;
  if (r >= s.rows) return;
  const T* head = x + r * s.stride + h * s.head_dim;
  T* to = out + r * out_stride + h * s.head_dim;
  const float *cos = s.cos_sin + r * s.head_dim, *sin = cos + half;
  const float inverse = inverse_rms(head, s.head_dim, s.eps);
  for (std::int64_t i = threadIdx.x % 32; i < half; i += 32) {
    const float a = load(head[i]) * inverse * load(w[i]);
    const float b = load(head[half + i]) * inverse * load(w[half + i]);
    store(to[i], a * cos[i] - b * sin[i]);
    store(to[half + i], b * cos[i] + a * sin[i]);
  }
}

constexpr int kMostPairs = 4;  // of a lane: head_dim 256

// A warp per head of a row, block by block of heads; a lane keeps the weight's gradient of its columns.
template <class T>
__global__ void norm_rope_backward_kernel(Heads s, const T* x, const T* w, const T* dout, std::int64_t dout_stride,
                                          T* dx, float* partial) {
  __shared__ float sums[kWarps][kMostPairs * 64];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t half = s.head_dim / 2, count = s.rows * s.heads;
  float own[kMostPairs][2] = {};
  for (std::int64_t at = share(count, blockIdx.x, gridDim.x) + warp; at < share(count, blockIdx.x + 1, gridDim.x);
       at += kWarps) {
    const std::int64_t r = at / s.heads, h = at % s.heads;
    const T* head = x + r * s.stride + h * s.head_dim;
    const T* grad = dout + r * dout_stride + h * s.head_dim;
    T* to = dx + r * s.stride + h * s.head_dim;
    const float *cos = s.cos_sin + r * s.head_dim, *sin = cos + half;
    const float inverse = inverse_rms(head, s.head_dim, s.eps);
    float turned[kMostPairs][2], dot = 0;
#pragma unroll
    for (int p = 0; p < kMostPairs; ++p) {
      const std::int64_t i = p * 32 + lane;
      if (i >= half) continue;
      turned[p][0] = load(grad[i]) * cos[i] + load(grad[half + i]) * sin[i];
      turned[p][1] = load(grad[half + i]) * cos[i] - load(grad[i]) * sin[i];
      dot += load(head[i]) * turned[p][0] * load(w[i]) + load(head[half + i]) * turned[p][1] * load(w[half + i]);
    }
    const float back = warp_sum(dot) * inverse * inverse * inverse / static_cast<float>(s.head_dim);
#pragma unroll
    for (int p = 0; p < kMostPairs; ++p) {
      for (int side = 0; side < 2; ++side) {
        const std::int64_t i = side * half + p * 32 + lane;
        if (p * 32 + lane >= half) continue;
        own[p][side] += turned[p][side] * load(head[i]) * inverse;
        store(to[i], turned[p][side] * load(w[i]) * inverse - load(head[i]) * back);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kMostPairs; ++p) {
    for (int side = 0; side < 2; ++side) {
      if (p * 32 + lane < half) sums[warp][side * half + p * 32 + lane] = own[p][side];
    }
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < s.head_dim; i += kThreads) {
    float total = 0;
    for (int part = 0; part < kWarps; ++part) total += sums[part][i];
    partial[blockIdx.x * s.head_dim + i] = total;
  }
}

__device__ inline float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// Eight columns of a row per thread, or one where the width isn't a multiple of eight.
template <class T, int N>
__global__ void silu_mul_kernel(std::int64_t rows, std::int64_t width, const T* gate_up, T* out) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (at >= rows * width) return;
  const T* gate = gate_up + at / width * 2 * width + at % width;
  struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Part {
    T at[N];
  };
  const Part g = *reinterpret_cast<const Part*>(gate), u = *reinterpret_cast<const Part*>(gate + width);
  Part result;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    store(result.at[i], rounded<T>(load(g.at[i]) * sigmoid(load(g.at[i]))) * load(u.at[i]));
  }
  *reinterpret_cast<Part*>(out + at) = result;
}

template <class T, int N>
__global__ void silu_mul_backward_kernel(std::int64_t rows, std::int64_t width, const T* gate_up, const T* dout,
                                         T* dgate_up) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (at >= rows * width) return;
  const std::int64_t to = at / width * 2 * width + at % width;
  struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Part {
    T at[N];
  };
  const Part g = *reinterpret_cast<const Part*>(gate_up + to), u = *reinterpret_cast<const Part*>(gate_up + to + width);
  const Part d = *reinterpret_cast<const Part*>(dout + at);
  Part dgate, dup;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float gate = load(g.at[i]), slope = sigmoid(gate), grad = load(d.at[i]);
    store(dup.at[i], grad * gate * slope);
    store(dgate.at[i], grad * load(u.at[i]) * slope * (1.f + gate * (1.f - slope)));
  }
  *reinterpret_cast<Part*>(dgate_up + to) = dgate;
  *reinterpret_cast<Part*>(dgate_up + to + width) = dup;
}

// Adam with its constants in the precision the reference has them.
struct AdamFloats {
  float step, root, beta1, rest1, beta2, rest2, eps, decay, grad_scale;
};
template <class T>
__global__ void adamw_kernel(AdamFloats a, std::int64_t count, const float* grad, float* master, float* first,
                             float* second, T* weights) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const float g = grad[i] * a.grad_scale;
  const float m = first[i] * a.beta1 + g * a.rest1, v = second[i] * a.beta2 + g * g * a.rest2;
  const float updated = master[i] * a.decay - a.step * m / (sqrtf(v) * a.root + a.eps);
  first[i] = m;
  second[i] = v;
  master[i] = updated;
  store(weights[i], updated);
}

__device__ double block_sum(double x) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = x;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  return sums[0];
}
__global__ void squares_kernel(const float* values, std::int64_t count, double* partial) {
  double sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
__global__ void sum_kernel(const double* partial, int count, double* result) {
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

int partial_rows(std::int64_t rows) {
  return static_cast<int>(std::clamp<std::int64_t>(rows / kRows, 1, kPartialRows));
}

}  // namespace

void rms(Element type, const Norm& n, const void* x, const void* w, void* y, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    rms_kernel<<<blocks_for(n.rows, kWarps), kThreads, 0, stream>>>(n, in(x, t), in(w, t), out(y, t));
  });
}

void rms_backward(Element type, const Norm& n, const void* x, const void* w, const void* dy, bool accumulate, void* dx,
                  float* dw, float* partial, cudaStream_t stream) {
  const int blocks = partial_rows(n.rows);
  by_type(type, [&](auto* t) {
    rms_backward_kernel<<<blocks, kThreads, 0, stream>>>(n, in(x, t), in(w, t), in(dy, t), accumulate, out(dx, t),
                                                         partial);
  });
  add_partials(partial, blocks, n.width, dw, stream);
}

void norm_rope(Element type, const Heads& s, const void* x, const void* w, void* to, std::int64_t stride,
               cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    norm_rope_kernel<<<blocks_for(s.rows * s.heads, kWarps), kThreads, 0, stream>>>(s, in(x, t), in(w, t), out(to, t),
                                                                                    stride);
  });
}

void norm_rope_backward(Element type, const Heads& s, const void* x, const void* w, const void* dout,
                        std::int64_t stride, void* dx, float* dw, float* partial, cudaStream_t stream) {
  const int blocks = partial_rows(s.rows * s.heads);
  by_type(type, [&](auto* t) {
    norm_rope_backward_kernel<<<blocks, kThreads, 0, stream>>>(s, in(x, t), in(w, t), in(dout, t), stride, out(dx, t),
                                                               partial);
  });
  add_partials(partial, blocks, s.head_dim, dw, stream);
}

void silu_mul(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, void* to, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (width % 8 == 0) {
      silu_mul_kernel<T, 8>
          <<<blocks_for(rows * width, kThreads * 8), kThreads, 0, stream>>>(rows, width, in(gate_up, t), out(to, t));
    } else {
      silu_mul_kernel<T, 1>
          <<<blocks_for(rows * width, kThreads), kThreads, 0, stream>>>(rows, width, in(gate_up, t), out(to, t));
    }
  });
}

void silu_mul_backward(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, const void* dout,
                       void* dgate_up, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (width % 8 == 0) {
      silu_mul_backward_kernel<T, 8><<<blocks_for(rows * width, kThreads * 8), kThreads, 0, stream>>>(
          rows, width, in(gate_up, t), in(dout, t), out(dgate_up, t));
    } else {
      silu_mul_backward_kernel<T, 1><<<blocks_for(rows * width, kThreads), kThreads, 0, stream>>>(
          rows, width, in(gate_up, t), in(dout, t), out(dgate_up, t));
    }
  });
}

void adamw(Element type, const Adam& a, std::int64_t count, const float* grad, float* master, float* first,
           float* second, void* weights, cudaStream_t stream) {
  AdamFloats f;
  f.step = static_cast<float>(a.learning_rate / a.correction1);
  f.root = static_cast<float>(1.0 / std::sqrt(a.correction2));
  f.beta1 = static_cast<float>(a.beta1);
  f.rest1 = static_cast<float>(1 - a.beta1);
  f.beta2 = static_cast<float>(a.beta2);
  f.rest2 = static_cast<float>(1 - a.beta2);
  f.eps = static_cast<float>(a.eps);
  f.decay = static_cast<float>(1 - a.learning_rate * a.weight_decay);
  f.grad_scale = a.grad_scale;
  by_type(type, [&](auto* t) {
    adamw_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(f, count, grad, master, first, second,
                                                                       out(weights, t));
  });
}

void sum_of_squares(const float* values, std::int64_t count, double* partial, double* result, cudaStream_t stream) {
  const int blocks = static_cast<int>(std::clamp<std::int64_t>(count / 4096, 1, kPartialRows));
  squares_kernel<<<blocks, kThreads, 0, stream>>>(values, count, partial);
  sum_kernel<<<1, kThreads, 0, stream>>>(partial, blocks, result);
}

}  // namespace levada::trainkernels::cuda
