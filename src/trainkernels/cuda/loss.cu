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

// Rounded logits need no better exponential than the chip's own.
template <class T>
__device__ inline float exponential(float x) {
  return sizeof(T) == sizeof(float) ? expf(x) : __expf(x);
}

// N logits from i on. A new top is rare, so only then is its place looked for.
template <class T, int N>
__device__ inline void see(const T* x, std::int64_t i, Seen& seen) {
  float top = load(x[0]);
#pragma unroll
  for (int j = 1; j < N; ++j) top = fmaxf(top, load(x[j]));
  if (top > seen.top) {
    if (seen.sum > 0) seen.sum *= expf(seen.top - top);
    seen.top = top;
#pragma unroll
    for (int j = N - 1; j >= 0; --j) seen.at = load(x[j]) == top ? i + j : seen.at;
  }
#pragma unroll
  for (int j = 0; j < N; ++j) seen.sum += exponential<T>(load(x[j]) - seen.top);
}

// The row's totals to everybody in the block.
__device__ inline Seen block_both(Seen seen) {
  __shared__ Seen warps[kThreads / 32];
  __shared__ Seen all;
  seen = warp_both(seen);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = seen;
  __syncthreads();
  if (threadIdx.x < 32) {
    seen = warp_both(threadIdx.x < kThreads / 32 ? warps[threadIdx.x] : Seen());
    if (threadIdx.x == 0) all = seen;
  }
  __syncthreads();
  return all;
}
template <class T>
__device__ inline void report(const Seen& seen, std::int64_t r, const T* row, std::int64_t label, float* nll,
                              float* norm, std::int64_t* argmax) {
  if (threadIdx.x != 0) return;
  nll[r] = logf(seen.sum) + (seen.top - load(row[label]));
  norm[2 * r] = seen.top;
  norm[2 * r + 1] = 1.f / seen.sum;
  argmax[r] = seen.at;
}

// A block per row.
template <class T, bool kEights>
__global__ void cross_entropy_kernel(std::int64_t width, const T* logits, const std::int64_t* labels, float* nll,
                                     float* norm, std::int64_t* argmax) {
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
  report(block_both(seen), r, row, labels[r], nll, norm, argmax);
}

// Both passes over a row that fits into shared memory: read once, all of it on its way at a time, and written once.
__global__ __launch_bounds__(kThreads, 2) void cross_entropy_both_kernel(std::int64_t width, bf16* logits,
                                                                         const std::int64_t* labels, float* nll,
                                                                         float* norm, std::int64_t* argmax,
                                                                         const float* coefficient) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* kept = reinterpret_cast<Eight<bf16>*>(shared);  // a thread reads only what it wrote
  const std::int64_t r = blockIdx.x, label = labels[r];
  bf16* row = logits + r * width;
  Seen seen;
  for (int i = threadIdx.x; i < width / 8; i += kThreads) copy_16(kept + i, row + i * 8);
  commit_copies();
  wait_for_copies<0>();
  for (int i = threadIdx.x; i < width / 8; i += kThreads) see<bf16, 8>(kept[i].at, i * 8, seen);
  seen = block_both(seen);
  report(seen, r, row, label, nll, norm, argmax);
  __syncthreads();  // the label's logit is read before it is overwritten
  const float hit = coefficient[r], scale = hit / seen.sum;
  for (int i = threadIdx.x; i < width / 8; i += kThreads) {
    Eight<bf16> x = kept[i];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      store(x.at[j], exponential<bf16>(load(x.at[j]) - seen.top) * scale - (i * 8 + j == label ? hit : 0.f));
    }
    eight(row, i) = x;
  }
}

template <class T, bool kEights>
__global__ void cross_entropy_backward_kernel(std::int64_t width, T* logits, const std::int64_t* labels,
                                              const float* norm, const float* coefficient) {
  const std::int64_t r = blockIdx.x, label = labels[r];
  T* row = logits + r * width;
  const float top = norm[2 * r], scale = coefficient[r] * norm[2 * r + 1], hit = coefficient[r];
  auto gradient = [&](float x, std::int64_t i) { return exponential<T>(x - top) * scale - (i == label ? hit : 0.f); };
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

bool cross_entropy_both(Element type, std::int64_t rows, std::int64_t width, void* logits, const std::int64_t* labels,
                        float* nll, float* norm, std::int64_t* argmax, const float* coefficient, cudaStream_t stream) {
  constexpr std::int64_t kMostBytes = 100 << 10;  // two blocks on a multiprocessor
  const std::int64_t bytes = width * static_cast<std::int64_t>(sizeof(bf16));
  if (type != Element::kBf16 || width % 8 != 0 || bytes > kMostBytes) return false;
  cudaFuncSetAttribute(cross_entropy_both_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  cross_entropy_both_kernel<<<static_cast<unsigned>(rows), kThreads, static_cast<std::size_t>(bytes), stream>>>(
      width, static_cast<bf16*>(logits), labels, nll, norm, argmax, coefficient);
  return true;
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
