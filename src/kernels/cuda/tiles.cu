#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/tiles.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kSide = 32;                   // rows of x, and of w, that a block multiplies
constexpr int kChunk = 32;                  // columns: 64 bytes of a row, shared by four lanes
constexpr int kPieces = 8;                  // 16-byte pieces that a lane has of a chunk: four rows of x, four of w
constexpr int kChunkBytes = kPieces * 512;  // of a warp
constexpr int kSumStride = kSide + 8;       // in floats: rows begin eight banks apart
constexpr int kSumBytes = kWarps * kSide * kSumStride * 4;
constexpr int kMaxChunks = 6;  // of a warp
constexpr int kMinRows = 17, kMaxRows = 64;
constexpr std::int64_t kMaxWeightBytes = 8 << 20;  // which every group of rows reads, the second from L2
constexpr int kMaxSharedBytes = kWarps * kMaxChunks * kChunkBytes + kWarps * kMaxChunks * kChunk * 4;

struct TileProblem {
  const void *x, *w;
  const float* norm;  // nullptr: none
  void* out;
  std::int64_t x_stride, out_stride;
  int rows, n, k, each;  // n: columns of out; each: chunks of a warp
  float eps, k_inverse;
};

template <LinearEnd kEnd>
constexpr int kOutColumns = kEnd == LinearEnd::kSiluMul ? kSide / 2 : kSide;  // of a block

// The part of the columns that a warp multiplies, and where its pieces of them lie.
template <class T, LinearEnd kEnd>
class Strip {
 public:
  __device__ Strip(const TileProblem& p, char* shared)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % 32),
        first_(static_cast<int>(threadIdx.x) / 32 * p.each),
        count_(max(0, min(p.each, p.k / kChunk - first_))),
        pieces_(shared + first_ * kChunkBytes + lane_ * 16),
        norms_(reinterpret_cast<float*>(shared + kWarps * p.each * kChunkBytes) + first_ * kChunk + lane_ % 4 * 8) {}

  __device__ int count() const { return count_; }
  __device__ int column() const { return first_ * kChunk + lane_ % 4 * 8; }
  // Never written by a predecessor.
  __device__ void ask_for_weights() const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      constexpr int kOwn = kOutColumns<kEnd>;
      const int of_tile = j * 8 + lane_ / 4, out = static_cast<int>(blockIdx.x) * kOwn + of_tile % kOwn;
      // Rows past the end repeat the last; they are not stored.
      const std::int64_t row = min(out, p_.n - 1) + (of_tile < kOwn ? 0 : p_.n);
      const T* const from = static_cast<const T*>(p_.w) + row * p_.k + column();
      for (int c = 0; c < count_; ++c) copy_ahead(piece(c, 4 + j), from + c * kChunk);
    }
    if (p_.norm == nullptr || lane_ >= 4) return;
    for (int c = 0; c < count_; ++c) {
      copy_ahead(norms_ + c * kChunk, p_.norm + column() + c * kChunk);
      copy_ahead(norms_ + c * kChunk + 4, p_.norm + column() + c * kChunk + 4);
    }
  }
  __device__ void ask_for_x() const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = min(static_cast<int>(blockIdx.y) * kSide + i * 8 + lane_ / 4, p_.rows - 1);
      const T* const from = static_cast<const T*>(p_.x) + row * p_.x_stride + column();
      for (int c = 0; c < count_; ++c) copy_ahead(piece(c, i), from + c * kChunk);
    }
  }
  __device__ uint4 got(int c, int which) const { return *static_cast<const uint4*>(piece(c, which)); }
  __device__ const float* norms(int c) const { return norms_ + c * kChunk; }

 private:
  __device__ void* piece(int c, int which) const { return pieces_ + (c * kPieces + which) * 512; }
  const TileProblem& p_;
  const int lane_, first_, count_;
  char* const pieces_;
  float* const norms_;
};

// Eight columns of a row times their norm weights; returns the sum of their squares before.
template <class T>
__device__ float weigh(uint4& bits, const float* norms) {
  Pack<T> pack = *reinterpret_cast<Pack<T>*>(&bits);
  float squares = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float x = widen(pack.at[e]);
    squares += x * x;
    pack.at[e] = narrow<T>(x * widen(narrow<T>(norms[e] * kNormScale<T>)));
  }
  bits = *reinterpret_cast<uint4*>(&pack);
  return squares;
}

// The sum over the warps of one element.
__device__ float whole_sum(const float* sums, int row, int column) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[(warp * kSide + row) * kSumStride + column];
  return sum;
}

template <class T, LinearEnd kEnd>
__global__ void __launch_bounds__(kThreads, 2) tile_kernel(const TileProblem p) {
  extern __shared__ __align__(128) char tile_shared[];
  __shared__ float squares[kWarps][kSide];
  let_successors_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Strip<T, kEnd> strip(p, tile_shared);
  strip.ask_for_weights();
  wait_for_predecessors();
  strip.ask_for_x();
  end_step();
  // What this thread adds up in the end: some neighbouring columns of a row.
  constexpr int kOwn = kOutColumns<kEnd> / 8;
  const int own_row = static_cast<int>(threadIdx.x) / 8, own_column = static_cast<int>(threadIdx.x) % 8 * kOwn;
  const int row = static_cast<int>(blockIdx.y) * kSide + own_row;
  const int column = static_cast<int>(blockIdx.x) * kOutColumns<kEnd> + own_column;
  T* const to = static_cast<T*>(p.out) + row * p.out_stride + column;
  T before[kOwn]{};
  if constexpr (kEnd == LinearEnd::kAdd) {
    for (int i = 0; i < kOwn; ++i) {
      if (row < p.rows && column + i < p.n) before[i] = __ldcg(to + i);
    }
  }
  wait_all_but<0>();
  __syncwarp();  // norm weights come from other lanes

  float sums[2][4][4]{}, own_squares[4]{};
  for (int c = 0; c < strip.count(); ++c) {
    uint4 x[4], w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = strip.got(c, i);
      w[i] = strip.got(c, 4 + i);
      if (p.norm != nullptr) own_squares[i] += weigh<T>(x[i], strip.norms(c));
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint4 &low = x[2 * m], &high = x[2 * m + 1];
        multiply<T>(sums[m][n], low.x, high.x, low.y, high.y, w[n].x, w[n].y);
        multiply<T>(sums[m][n], low.z, high.z, low.w, high.w, w[n].z, w[n].w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float whole = own_squares[i];
    whole += __shfl_xor_sync(0xffffffffu, whole, 1);
    whole += __shfl_xor_sync(0xffffffffu, whole, 2);
    if (lane % 4 == 0) squares[warp][i * 8 + lane / 4] = whole;
  }
  __syncthreads();  // the strips' memory is free
  auto* const all = reinterpret_cast<float*>(tile_shared);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float* const at = all + (warp * kSide + m * 16 + lane / 4) * kSumStride + n * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(at) = make_float2(sums[m][n][0], sums[m][n][1]);
      *reinterpret_cast<float2*>(at + 8 * kSumStride) = make_float2(sums[m][n][2], sums[m][n][3]);
    }
  }
  __syncthreads();
  float scale = 1;
  if (p.norm != nullptr) {
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kWarps; ++from) sum += squares[from][own_row];
    scale = rsqrtf(sum * p.k_inverse + p.eps) * (1 / kNormScale<T>);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    float y = whole_sum(all, own_row, own_column + i) * scale;
    if constexpr (kEnd == LinearEnd::kSiluMul)
      y = silu(y) * (whole_sum(all, own_row, kSide / 2 + own_column + i) * scale);
    if constexpr (kEnd == LinearEnd::kAdd) y += widen(before[i]);
    if (row < p.rows && column + i < p.n) to[i] = narrow<T>(y);
  }
}

using Kernel = void (*)(TileProblem);

template <class T>
Kernel kernel_of(LinearEnd end) {
  switch (end) {
    case LinearEnd::kAdd: return tile_kernel<T, LinearEnd::kAdd>;
    case LinearEnd::kSiluMul: return tile_kernel<T, LinearEnd::kSiluMul>;
    default: return tile_kernel<T, LinearEnd::kStore>;
  }
}

Kernel kernel_for(DType dtype, LinearEnd end) {
  return dtype == DType::kBF16 ? kernel_of<Bf16>(end) : kernel_of<F16>(end);
}

int chunks_each(std::int64_t k) { return static_cast<int>((k / kChunk + kWarps - 1) / kWarps); }

}  // namespace

bool fits_tiles(const LinearCall& call) {
  const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
  if (call.w.dtype != DType::kBF16 && call.w.dtype != DType::kF16) return false;
  return rows >= kMinRows && rows <= kMaxRows && k % kChunk == 0 && chunks_each(k) <= kMaxChunks &&
         call.w.elements() * 2 <= kMaxWeightBytes && call.out.dtype == call.x.dtype;
}

Status prepare_tiles() {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
      LEVADA_RETURN_IF_ERROR(
          check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_for(dtype, end)),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes),
                     "asking for shared memory"));
    }
  }
  return {};
}

Status run_tiles(const LinearCall& call, cudaStream_t stream) {
  TileProblem p{};
  p.x = call.x.data;
  p.w = call.w.data;
  p.norm = call.norm.as<const float>();
  p.out = call.out.data;
  p.x_stride = call.x.strides[0];
  p.out_stride = call.out.strides[0];
  p.rows = static_cast<int>(call.x.shape[0]);
  p.n = static_cast<int>(call.out.shape[1]);
  p.k = static_cast<int>(call.x.shape[1]);
  p.each = chunks_each(p.k);
  p.eps = call.eps;
  p.k_inverse = 1 / static_cast<float>(p.k);
  const int columns = call.end == LinearEnd::kSiluMul ? kSide / 2 : kSide;
  const auto tiles = static_cast<unsigned>((p.n + columns - 1) / columns),
             groups = static_cast<unsigned>((p.rows + kSide - 1) / kSide);
  const int strips = kWarps * p.each * kChunkBytes + (p.norm != nullptr ? kWarps * p.each * kChunk * 4 : 0);
  return launch("linear", kernel_for(call.w.dtype, call.end),
                {dim3(tiles, groups), kThreads, static_cast<std::size_t>(std::max(strips, kSumBytes))}, stream, p);
}

}  // namespace levada::kernels::cuda
