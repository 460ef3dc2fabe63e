#include <algorithm>
#include <cmath>

#include "trainkernels/cuda/values.cuh"

namespace levada::trainkernels::cuda {
namespace {

constexpr int kThreads = 256;

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

}  // namespace

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
