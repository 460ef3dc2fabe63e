#include <cfloat>

#include "trainkernels/cuda/values.cuh"

namespace levada::trainkernels::cuda {
namespace {

constexpr int kThreads = 512;

// What a thread, then a warp, then the block knows of a row: its largest logit and where, and the sum of exponentials.
struct Seen {
  float top = -INFINITY, sum = 0;
  std::int64_t at = INT64_MAX;
};
// The lower index wins a tie.
__device__ inline Seen both(const Seen& a, const Seen& b) {
  Seen all;
  all.top = fmaxf(a.top, b.top);
  all.at = a.top > b.top || (a.top == b.top && a.at < b.at) ? a.at : b.at;
  all.sum = 0;
  if (a.sum > 0) all.sum += a.sum * expf(a.top - all.top);
  if (b.sum > 0) all.sum += b.sum * expf(b.top - all.top);
  return all;
}
__device__ inline Seen warp_both(Seen seen) {
  for (int step = 16; step > 0; step /= 2) {
    Seen other;
    other.top = __shfl_xor_sync(0xffffffffu, seen.top, step);
    other.sum = __shfl_xor_sync(0xffffffffu, seen.sum, step);
    other.at = __shfl_xor_sync(0xffffffffu, seen.at, step);
    seen = both(seen, other);
  }
  return seen;
}

// N logits from i on: one rescaling for all of them.
template <class T, int N>
__device__ inline void see(const T* x, std::int64_t i, Seen& seen) {
  float top = seen.top;
  std::int64_t at = seen.at;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float value = load(x[j]);
    if (value > top) {
      top = value;
      at = i + j;
    }
  }
  float sum = seen.sum > 0 ? seen.sum * expf(seen.top - top) : 0;
#pragma unroll
  for (int j = 0; j < N; ++j) sum += expf(load(x[j]) - top);
  seen = {top, sum, at};
}

// A block per row.
template <class T, bool kEights>
__global__ void cross_entropy_kernel(std::int64_t width, const T* logits, const std::int64_t* labels, float* nll,
                                     float* norm, std::int64_t* argmax) {
  __shared__ Seen warps[kThreads / 32];
  const std::int64_t r = blockIdx.x;
  const T* row = logits + r * width;
  Seen seen;
  if constexpr (kEights) {
    for (std::int64_t i = threadIdx.x; i < width / 8; i += kThreads) {
      const Eight<T> x = eight(row, i);
      see<T, 8>(x.at, i * 8, seen);
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) see<T, 1>(row + i, i, seen);
  }
  seen = warp_both(seen);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = seen;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  seen = warp_both(threadIdx.x < kThreads / 32 ? warps[threadIdx.x] : Seen());
  if (threadIdx.x != 0) return;
  nll[r] = logf(seen.sum) + (seen.top - load(row[labels[r]]));
  norm[2 * r] = seen.top;
  norm[2 * r + 1] = 1.f / seen.sum;
  argmax[r] = seen.at;
}

template <class T, bool kEights>
__global__ void cross_entropy_backward_kernel(std::int64_t width, T* logits, const std::int64_t* labels,
                                              const float* norm, const float* coefficient) {
  const std::int64_t r = blockIdx.x, label = labels[r];
  T* row = logits + r * width;
  const float top = norm[2 * r], scale = coefficient[r] * norm[2 * r + 1], hit = coefficient[r];
  auto gradient = [&](float x, std::int64_t i) { return expf(x - top) * scale - (i == label ? hit : 0.f); };
  if constexpr (kEights) {
    for (std::int64_t i = threadIdx.x; i < width / 8; i += kThreads) {
      Eight<T> x = eight(row, i);
#pragma unroll
      for (int j = 0; j < 8; ++j) store(x.at[j], gradient(load(x.at[j]), i * 8 + j));
      eight(row, i) = x;
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) store(row[i], gradient(load(row[i]), i));
  }
}

}  // namespace

void cross_entropy(Element type, std::int64_t rows, std::int64_t width, const void* logits, const std::int64_t* labels,
                   float* nll, float* norm, std::int64_t* argmax, cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    auto* kernel = width % 8 == 0 ? cross_entropy_kernel<T, true> : cross_entropy_kernel<T, false>;
    kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(width, in(logits, t), labels, nll, norm, argmax);
  });
}

void cross_entropy_backward(Element type, std::int64_t rows, std::int64_t width, void* logits,
                            const std::int64_t* labels, const float* norm, const float* coefficient,
                            cudaStream_t stream) {
  by_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    auto* kernel = width % 8 == 0 ? cross_entropy_backward_kernel<T, true> : cross_entropy_backward_kernel<T, false>;
    kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(width, out(logits, t), labels, norm, coefficient);
  });
}

}  // namespace levada::trainkernels::cuda
