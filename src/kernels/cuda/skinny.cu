#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/skinny.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kTile = 8;        // weight rows of a tile: what one mma takes
constexpr int kChunk = 32;      // columns that a lane group loads at once: 64 bytes of each row
constexpr int kRing = 5;        // steps in flight
constexpr int kStepLoads = 4;   // 16-byte loads of a lane in one step
constexpr int kXLoads = 8;      // 16-byte loads of x in flight per lane
constexpr int kXPadBytes = 64;  // moves the next row of x to the other half of the banks
constexpr std::int64_t kMaxSharedBytes = 220 * 1024;

struct Problem {
  const void *x, *w;
  const float* norm;  // nullptr: none
  void* out;
  std::int64_t x_stride, out_stride;
  int rows, n, k, tiles;  // n: columns of out
  float eps;
};

// Shared memory: norm weights, x, the rings, partial sums of two tiles.
struct Layout {
  int x, ring, sums, total;

  __host__ __device__ static Layout of(int rows, int k, bool norm, int batch, int streams) {
    Layout at{};
    at.x = norm ? k * static_cast<int>(sizeof(float)) : 0;
    at.ring = at.x + rows * x_stride_bytes(k);
    at.sums = at.ring + kWarps * kRing * kStepLoads * 512;
    at.total = at.sums + 2 * kWarps * streams * batch * kTile * static_cast<int>(sizeof(float));
    return at;
  }
  // A multiple of 128 bytes, and half of one.
  __host__ __device__ static int x_stride_bytes(int k) { return (k * 2 + 127) / 128 * 128 + kXPadBytes; }
};

__device__ void copy_ahead(void* to, const void* from) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ void end_step() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last `kMost` steps have arrived.
template <int kMost>
__device__ void wait_steps() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}

// sum[batch row][weight row] += a b over 16 columns.
template <class T>
__device__ void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                         unsigned b1) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// The slice of the columns that a warp multiplies, the same for every tile.
struct Slice {
  int first, count, steps;  // in chunks; steps per tile

  __device__ Slice(int k, int warp, int step_chunks) {
    const int chunks = k / kChunk, each = (chunks + kWarps - 1) / kWarps;
    first = warp * each;
    count = max(0, min(each, chunks - first));
    steps = (count + step_chunks - 1) / step_chunks;
  }
};

// Asks for the weights of one lane, step after step, tile after tile. kStreams = 2: a gate row and its up row.
template <class T, int kStreams>
class Feed {
 public:
  static constexpr int kChunks = kStepLoads / kStreams;  // of a step

  __device__ Feed(const Problem& p, const Slice& slice, char* ring, int lane)
      : p_(p), slice_(slice), ring_(ring), lane_(lane), tile_(static_cast<int>(blockIdx.x)) {
    aim();
  }
  // Asks for the next step, if there is one, into the ring's place `stage`.
  __device__ void ask(int stage) {
    if (tile_ < p_.tiles && slice_.count > 0) {
#pragma unroll
      for (int u = 0; u < kChunks; ++u) {
        if (chunk_ + u >= slice_.count) break;
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
          copy_ahead(place(stage, u, s), from_[s] + static_cast<std::int64_t>(chunk_ + u) * kChunk);
        }
      }
      chunk_ += kChunks;
      if (chunk_ >= slice_.count) {
        chunk_ = 0;
        tile_ += static_cast<int>(gridDim.x);
        aim();
      }
    }
    end_step();
  }
  __device__ uint4 got(int stage, int u, int s) const { return *static_cast<const uint4*>(place(stage, u, s)); }

 private:
  __device__ void* place(int stage, int u, int s) const {
    return ring_ + ((stage * kChunks + u) * kStreams + s) * 512 + lane_ * 16;
  }
  __device__ void aim() {
    const int row = min(tile_ * kTile + lane_ / 4, p_.n - 1);  // rows past the end repeat the last; they are not stored
    const std::int64_t column = static_cast<std::int64_t>(slice_.first) * kChunk + lane_ % 4 * 8;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      from_[s] = static_cast<const T*>(p_.w) + (static_cast<std::int64_t>(s) * p_.n + row) * p_.k + column;
    }
  }
  const Problem& p_;
  const Slice& slice_;
  char* const ring_;
  const int lane_;
  int tile_, chunk_ = 0;
  const T* from_[kStreams];
};

// The rows of x into shared memory, normed if wanted. 8 / `share` rows at a time, `share` warps to each.
template <class T>
__device__ void load_x(const Problem& p, char* shared, const Layout& at) {
  __shared__ float squares[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = p.rows == 1 ? 8 : p.rows == 2 ? 4 : p.rows <= 4 ? 2 : 1;
  const int packs = p.k / 8, stride = share * 32;
  const int own = static_cast<int>(threadIdx.x) % stride;
  const auto* const weight = reinterpret_cast<const float*>(shared);
  for (int first = 0; first < p.rows; first += kWarps / share) {
    const int r = first + warp / share;
    auto* const to = reinterpret_cast<T*>(shared + at.x + r * Layout::x_stride_bytes(p.k));
    float sum = 0;
    if (r < p.rows) {
      const T* const from = static_cast<const T*>(p.x) + r * p.x_stride;
      for (int c = own; c < packs; c += stride * kXLoads) {
        Pack<T> got[kXLoads];
#pragma unroll
        for (int i = 0; i < kXLoads; ++i) {
          if (c + i * stride < packs) got[i] = load_fresh(from + (c + i * stride) * 8);
        }
#pragma unroll
        for (int i = 0; i < kXLoads; ++i) {
          if (c + i * stride >= packs) break;
          store(to + (c + i * stride) * 8, got[i]);
          for (int e = 0; e < 8; ++e) sum += widen(got[i].at[e]) * widen(got[i].at[e]);
        }
      }
    }
    if (p.norm == nullptr) continue;
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) squares[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < share; ++i) sum += squares[warp / share * share + i];
    __syncthreads();
    const float scale = rsqrtf(sum / static_cast<float>(p.k) + p.eps);
    for (int c = own; r < p.rows && c < packs; c += stride) {
      auto* const pack = reinterpret_cast<Pack<T>*>(to + c * 8);
      Pack<T> normed = *pack;
      for (int e = 0; e < 8; ++e) normed.at[e] = narrow<T>(widen(normed.at[e]) * scale * weight[c * 8 + e]);
      *pack = normed;
    }
  }
}

// One lane's share of a tile: the products of its warp's columns.
template <class T, int kBatch, int kStreams>
struct TileSums {
  float at[kStreams][2][4];  // two chains each

  __device__ void add(const Feed<T, kStreams>& feed, int stage, const char* x, int x_stride, int rows, int first,
                      int chunks, int lane) {
    const int row = lane / 4;
#pragma unroll
    for (int u = 0; u < Feed<T, kStreams>::kChunks; ++u) {
      if (u >= chunks) break;
      const char* const column = x + (first + u) * (kChunk * 2) + lane % 4 * 16;
      uint4 low{}, high{};
      if (row < rows) low = *reinterpret_cast<const uint4*>(column + row * x_stride);
      if (kBatch > 8 && row + 8 < rows) high = *reinterpret_cast<const uint4*>(column + (row + 8) * x_stride);
#pragma unroll
      for (int s = 0; s < kStreams; ++s) {
        const uint4 w = feed.got(stage, u, s);
        multiply<T>(at[s][0], low.x, high.x, low.y, high.y, w.x, w.y);
        multiply<T>(at[s][1], low.z, high.z, low.w, high.w, w.z, w.w);
      }
    }
  }
  // [batch row][weight row] of each stream.
  __device__ void leave(float* sums, int lane) const {
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      for (int half = 0; half < kBatch / 8; ++half) {
        auto* const to = sums + (s * kBatch + half * 8 + lane / 4) * kTile + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) =
            make_float2(at[s][0][half * 2] + at[s][1][half * 2], at[s][0][half * 2 + 1] + at[s][1][half * 2 + 1]);
      }
    }
  }
};

template <int kBatch, int kStreams>
__device__ float whole_sum(const float* sums, int s) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[(warp * kStreams + s) * kBatch * kTile + threadIdx.x];
  return sum;
}

template <class T, int kBatch, LinearEnd kEnd, class Out>
__global__ void __launch_bounds__(kThreads) skinny_kernel(const Problem p) {
  constexpr int kStreams = kEnd == LinearEnd::kSiluMul ? 2 : 1;
  extern __shared__ __align__(128) char shared[];
  let_successors_start();
  const Layout at = Layout::of(p.rows, p.k, p.norm != nullptr, kBatch, kStreams);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (p.norm != nullptr) {
    for (int c = static_cast<int>(threadIdx.x); c < p.k / 4; c += kThreads) copy_ahead(shared + c * 16, p.norm + c * 4);
    end_step();
  }
  const Slice slice(p.k, warp, Feed<T, kStreams>::kChunks);
  Feed<T, kStreams> feed(p, slice, shared + at.ring + warp * kRing * kStepLoads * 512, lane);
  for (int stage = 0; stage < kRing; ++stage) feed.ask(stage);
  wait_steps<kRing>();  // the norm weights
  __syncthreads();
  wait_for_predecessors();
  load_x<T>(p, shared, at);
  __syncthreads();

  const int batch_row = static_cast<int>(threadIdx.x) / kTile;
  auto* const sums = reinterpret_cast<float*>(shared + at.sums);
  constexpr int kTileFloats = kWarps * kStreams * kBatch * kTile;
  int stage = 0, buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.tiles; tile += static_cast<int>(gridDim.x)) {
    const int column = tile * kTile + static_cast<int>(threadIdx.x) % kTile;
    const bool stores = batch_row < p.rows && column < p.n && threadIdx.x < kBatch * kTile;
    Out* const to = static_cast<Out*>(p.out) + batch_row * p.out_stride + column;
    Out before{};
    if (kEnd == LinearEnd::kAdd && stores) before = __ldcg(to);
    TileSums<T, kBatch, kStreams> tile_sums{};
    for (int step = 0; step < slice.steps; ++step) {
      wait_steps<kRing - 1>();
      const int chunk = step * Feed<T, kStreams>::kChunks;
      tile_sums.add(feed, stage, shared + at.x, Layout::x_stride_bytes(p.k), p.rows, slice.first + chunk,
                    slice.count - chunk, lane);
      feed.ask(stage);
      stage = stage + 1 == kRing ? 0 : stage + 1;
    }
    tile_sums.leave(sums + buffer * kTileFloats + warp * kStreams * kBatch * kTile, lane);
    __syncthreads();
    if (stores) {
      float y = whole_sum<kBatch, kStreams>(sums + buffer * kTileFloats, 0);
      if constexpr (kEnd == LinearEnd::kSiluMul)
        y = silu(y) * whole_sum<kBatch, kStreams>(sums + buffer * kTileFloats, 1);
      if constexpr (kEnd == LinearEnd::kAdd) y += widen(before);
      *to = narrow<Out>(y);
    }
    buffer ^= 1;  // the next tile's sums go elsewhere, so that one barrier a tile is enough
  }
}

using Kernel = void (*)(Problem);

template <class T, int kBatch>
Kernel kernel_with(LinearEnd end, bool wide_out) {
  switch (end) {
    case LinearEnd::kAdd: return skinny_kernel<T, kBatch, LinearEnd::kAdd, T>;
    case LinearEnd::kSiluMul: return skinny_kernel<T, kBatch, LinearEnd::kSiluMul, T>;
    case LinearEnd::kStore: break;
  }
  return wide_out ? skinny_kernel<T, kBatch, LinearEnd::kStore, float> : skinny_kernel<T, kBatch, LinearEnd::kStore, T>;
}

Kernel kernel_for(DType dtype, std::int64_t rows, LinearEnd end, bool wide_out) {
  if (dtype == DType::kBF16)
    return rows <= 8 ? kernel_with<Bf16, 8>(end, wide_out) : kernel_with<Bf16, 16>(end, wide_out);
  return rows <= 8 ? kernel_with<F16, 8>(end, wide_out) : kernel_with<F16, 16>(end, wide_out);
}

Layout layout_for(const LinearCall& call) {
  return Layout::of(static_cast<int>(call.x.shape[0]), static_cast<int>(call.x.shape[1]), call.norm.data != nullptr,
                    call.x.shape[0] <= 8 ? 8 : 16, call.end == LinearEnd::kSiluMul ? 2 : 1);
}

int multiprocessors() {
  static const int count = [] {
    int device = 0, processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    return std::max(1, processors);
  }();
  return count;
}

}  // namespace

bool fits_skinny(const LinearCall& call) {
  const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
  if (call.w.dtype != DType::kBF16 && call.w.dtype != DType::kF16) return false;
  return rows >= 1 && rows <= 16 && k % kChunk == 0 && k <= 65536 && layout_for(call).total <= kMaxSharedBytes;
}

Status prepare_skinny() {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t rows : {8, 16}) {
      for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
        for (const bool wide_out : {false, true}) {
          LEVADA_RETURN_IF_ERROR(check_cuda(
              cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_for(dtype, rows, end, wide_out)),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxSharedBytes)),
              "asking for shared memory"));
        }
      }
    }
  }
  return {};
}

Status run_skinny(const LinearCall& call, cudaStream_t stream) {
  Problem p{};
  p.x = call.x.data;
  p.w = call.w.data;
  p.norm = call.norm.as<const float>();
  p.out = call.out.data;
  p.x_stride = call.x.strides[0];
  p.out_stride = call.out.strides[0];
  p.rows = static_cast<int>(call.x.shape[0]);
  p.n = static_cast<int>(call.out.shape[1]);
  p.k = static_cast<int>(call.x.shape[1]);
  p.tiles = (p.n + kTile - 1) / kTile;
  p.eps = call.eps;
  const Kernel kernel = kernel_for(call.w.dtype, p.rows, call.end, call.out.dtype != call.x.dtype);
  return launch("linear", kernel,
                {dim3(static_cast<unsigned>(std::min(p.tiles, multiprocessors()))), kThreads,
                 static_cast<std::size_t>(layout_for(call).total)},
                stream, p);
}

}  // namespace levada::kernels::cuda
