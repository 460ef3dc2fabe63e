#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/skinny.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kTile = 8;                      // weight rows of a tile: what one mma takes
constexpr int kChunk = 32;                    // columns that a lane group loads at once: 64 bytes of each row
constexpr int kMostSteps = 6;                 // in flight, at most
constexpr int kStepLoads = 4;                 // 16-byte loads of a lane in one step
constexpr int kStepBytes = kStepLoads * 512;  // of a warp
constexpr int kXLoads = 6;                    // 16-byte loads of x in flight per lane
constexpr int kXPadBytes = 64;                // moves the next row of x to the other half of the banks
constexpr int kMaxXBytes = 100 * 1024;        // more than that is cuBLASLt's
constexpr int kHalfSharedBytes = 112 * 1024;  // what leaves room for the next kernel's block beside this one's
constexpr int kMaxSharedBytes = 220 * 1024;

struct Problem {
  const void *x, *w;
  const float* norm;  // nullptr: none
  void* out;
  std::int64_t x_stride, out_stride;
  int rows, n, k, tiles;  // n: columns of out
  int ring;               // steps in flight
  float eps;
};

// Shared memory: norm weights, x, the rings, partial sums of two tiles.
struct Layout {
  int x, ring, sums, total;

  __host__ __device__ static Layout of(int rows, int k, bool norm, int steps, int batch, int streams) {
    Layout at{};
    at.x = norm ? k * 2 : 0;
    at.ring = at.x + rows * x_stride_bytes(k);
    at.sums = at.ring + kWarps * steps * kStepBytes;
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
template <int kMost>
__device__ void wait_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}
// The oldest of `ring` steps in flight has arrived.
__device__ void wait_step(int ring) {
  switch (ring) {
    case 1: return wait_all_but<0>();
    case 2: return wait_all_but<1>();
    case 3: return wait_all_but<2>();
    case 4: return wait_all_but<3>();
    case 5: return wait_all_but<4>();
    default: return wait_all_but<kMostSteps - 1>();
  }
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

// Norm weights times this go into x, so that f16 doesn't overflow where the row is large; the epilogue takes it back.
template <class T>
constexpr float kNormScale = std::is_same_v<T, F16> ? 1.0f / 64 : 1.0f;

// Norm weights never change: they are brought near before the predecessors end. As T, like the x that they meet.
template <class T>
__device__ void fetch_norm(const Problem& p, char* shared) {
  for (int c = static_cast<int>(threadIdx.x); c < p.k / 4; c += kThreads) {
    const float4 weight = __ldg(reinterpret_cast<const float4*>(p.norm) + c);
    T* const to = reinterpret_cast<T*>(shared) + c * 4;
    to[0] = narrow<T>(weight.x * kNormScale<T>);
    to[1] = narrow<T>(weight.y * kNormScale<T>);
    to[2] = narrow<T>(weight.z * kNormScale<T>);
    to[3] = narrow<T>(weight.w * kNormScale<T>);
  }
  __syncthreads();
}

// One 16-byte pack of x on its way to shared memory, times the norm weights; returns the sum of its squares.
template <class T>
__device__ float weigh(Pack<T>& pack, const char* weights) {
  const Pack<T> weight = *reinterpret_cast<const Pack<T>*>(weights);
  float squares = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float x = widen(pack.at[e]);
    squares += x * x;
    pack.at[e] = narrow<T>(x * widen(weight.at[e]));
  }
  return squares;
}

// Warps that load one row of x together.
__device__ int warps_per_row(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1; }

// The rows of x into shared memory, times the norm weights if there are any. Each warp leaves the sum of the squares
// that it saw: squares[row * warps_per_row + its place in the row].
template <class T>
__device__ void load_x(const Problem& p, char* shared, const Layout& at, float* squares) {
  const int warp = static_cast<int>(threadIdx.x) / 32, share = warps_per_row(p.rows);
  const int packs = p.k / 8, stride = share * 32, own = static_cast<int>(threadIdx.x) % stride;
  for (int r = warp / share; r < p.rows; r += kWarps / share) {
    auto* const to = reinterpret_cast<T*>(shared + at.x + r * Layout::x_stride_bytes(p.k));
    const T* const from = static_cast<const T*>(p.x) + r * p.x_stride;
    float sum = 0;
    for (int c = own; c < packs; c += stride * kXLoads) {
      Pack<T> got[kXLoads];
#pragma unroll
      for (int i = 0; i < kXLoads; ++i) {
        if (c + i * stride < packs) got[i] = load_fresh(from + (c + i * stride) * 8);
      }
#pragma unroll
      for (int i = 0; i < kXLoads; ++i) {
        if (c + i * stride >= packs) break;
        if (p.norm != nullptr) sum += weigh(got[i], shared + (c + i * stride) * 16);
        store(to + (c + i * stride) * 8, got[i]);
      }
    }
    if (p.norm == nullptr) continue;
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) squares[r * share + warp % share] = sum;
  }
}

// What the products of a batch row are multiplied with: 1 / root mean square of x where it is normed.
template <class T>
__device__ float scale_of(const Problem& p, int row, const float* squares) {
  if (p.norm == nullptr) return 1;
  const int share = warps_per_row(p.rows);
  float sum = 0;
  for (int i = 0; i < share; ++i) sum += squares[row * share + i];
  return rsqrtf(sum / static_cast<float>(p.k) + p.eps) / kNormScale<T>;
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
__global__ void __launch_bounds__(kThreads, kBatch == 8 ? 3 : 2) skinny_kernel(const Problem p) {
  constexpr int kStreams = kEnd == LinearEnd::kSiluMul ? 2 : 1;
  extern __shared__ __align__(128) char shared[];
  __shared__ float squares[16];
  let_successors_start();
  const Layout at = Layout::of(p.rows, p.k, p.norm != nullptr, p.ring, kBatch, kStreams);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Slice slice(p.k, warp, Feed<T, kStreams>::kChunks);
  Feed<T, kStreams> feed(p, slice, shared + at.ring + warp * p.ring * kStepBytes, lane);
  for (int stage = 0; stage < p.ring; ++stage) feed.ask(stage);
  if (p.norm != nullptr) fetch_norm<T>(p, shared);
  wait_for_predecessors();
  load_x<T>(p, shared, at, squares);
  __syncthreads();

  const int batch_row = static_cast<int>(threadIdx.x) / kTile;
  const float scale = batch_row < p.rows ? scale_of<T>(p, batch_row, squares) : 0;
  auto* const sums = reinterpret_cast<float*>(shared + at.sums);
  constexpr int kTileFloats = kWarps * kStreams * kBatch * kTile;
  int stage = 0, buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.tiles; tile += static_cast<int>(gridDim.x)) {
    const int column = tile * kTile + static_cast<int>(threadIdx.x) % kTile;
    const bool stores = batch_row < p.rows && column < p.n;
    Out* const to = static_cast<Out*>(p.out) + batch_row * p.out_stride + column;
    Out before{};
    if (kEnd == LinearEnd::kAdd && stores) before = __ldcg(to);
    TileSums<T, kBatch, kStreams> tile_sums{};
    for (int step = 0; step < slice.steps; ++step) {
      wait_step(p.ring);
      const int chunk = step * Feed<T, kStreams>::kChunks;
      tile_sums.add(feed, stage, shared + at.x, Layout::x_stride_bytes(p.k), p.rows, slice.first + chunk,
                    slice.count - chunk, lane);
      feed.ask(stage);
      stage = stage + 1 == p.ring ? 0 : stage + 1;
    }
    tile_sums.leave(sums + buffer * kTileFloats + warp * kStreams * kBatch * kTile, lane);
    __syncthreads();
    if (stores) {
      const float* const from = sums + buffer * kTileFloats;
      float y = whole_sum<kBatch, kStreams>(from, 0) * scale;
      if constexpr (kEnd == LinearEnd::kSiluMul) y = silu(y) * (whole_sum<kBatch, kStreams>(from, 1) * scale);
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

int multiprocessors() {
  static const int count = [] {
    int device = 0, processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    return std::max(1, processors);
  }();
  return count;
}

// Blocks, and how deep their rings are.
struct Shape {
  int blocks, ring, shared_bytes;
};

Shape shape_for(const LinearCall& call) {
  const int rows = static_cast<int>(call.x.shape[0]), k = static_cast<int>(call.x.shape[1]);
  const int tiles = static_cast<int>((call.out.shape[1] + kTile - 1) / kTile), processors = multiprocessors();
  const int streams = call.end == LinearEnd::kSiluMul ? 2 : 1, batch = rows <= 8 ? 8 : 16;
  // Small matrices have a block for each tile, which then reads no other; large ones a block for each multiprocessor.
  const int blocks = tiles <= 2 * processors ? tiles : processors;
  const int chunks = (k / kChunk + kWarps - 1) / kWarps, step = kStepLoads / streams;
  const int steps = (chunks + step - 1) / step * ((tiles + blocks - 1) / blocks);
  const auto bytes = [&](int ring) {
    return Layout::of(rows, k, call.norm.data != nullptr, ring, batch, streams).total;
  };
  int ring = std::min(kMostSteps, steps);
  while (ring > 3 && bytes(ring) > kHalfSharedBytes) --ring;
  if (bytes(ring) > kHalfSharedBytes) ring = std::min(kMostSteps, steps);  // no room for two: then all for one
  return {blocks, ring, bytes(ring)};
}

}  // namespace

bool fits_skinny(const LinearCall& call) {
  const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
  if (call.w.dtype != DType::kBF16 && call.w.dtype != DType::kF16) return false;
  return rows >= 1 && rows <= 16 && k % kChunk == 0 && rows * (k * 2 + 128) <= kMaxXBytes;
}

Status prepare_skinny() {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t rows : {8, 16}) {
      for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
        for (const bool wide_out : {false, true}) {
          LEVADA_RETURN_IF_ERROR(
              check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_for(dtype, rows, end, wide_out)),
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes),
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
  const Shape shape = shape_for(call);
  p.ring = shape.ring;
  return launch("linear", kernel_for(call.w.dtype, p.rows, call.end, call.out.dtype != call.x.dtype),
                {dim3(static_cast<unsigned>(shape.blocks)), kThreads, static_cast<std::size_t>(shape.shared_bytes)},
                stream, p);
}

}  // namespace levada::kernels::cuda
