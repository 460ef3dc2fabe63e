#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/skinny.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kTile = 8;         // weight rows of a tile: what one mma takes
constexpr int kChunk = 32;       // columns that a lane group loads at once: 64 bytes of each row
constexpr int kLongRing = 10;    // steps in flight, where a block has a multiprocessor to itself
constexpr int kDeepRing = 5;     // where there is no room for more
constexpr int kShallowRing = 2;  // where a block has no more steps than that: leaves room for more kernels ahead
constexpr int kStepLoads = 4;    // 16-byte loads of a lane in one step
constexpr int kStepBytes = kStepLoads * 512;  // of a warp
constexpr int kXPadBytes = 64;                // moves the next row of x to the other half of the banks
constexpr int kMaxXBytes = 100 * 1024;        // more than that is cuBLASLt's
constexpr int kMaxSharedBytes = 220 * 1024;
// More than half of a multiprocessor's. A kernel that starts ahead is placed wherever there is room: were there room for
// two of its blocks, some multiprocessors would get two and work twice as long as those that got none.
constexpr int kOwnMultiprocessorBytes = 115 * 1024;
// Of weights, for each block: below it the long ring's first filling holds up x, which is asked for after it.
constexpr std::int64_t kLongRingBytes = 1 << 20;

struct Problem {
  const void *x, *w;
  const float* norm;  // nullptr: none
  void* out;
  std::int64_t x_stride, out_stride;
  int rows, n, k, tiles;  // n: columns of out
  float eps, k_inverse;
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

// What a tile is. kStreams > 1 with SiLU: 8 gate rows and their up rows; without: so many times 8 rows in turn, where
// there is little to sum for each and the block's barrier would cost most.
template <LinearEnd kEnd, int kStreams>
struct Tile {
  static constexpr int kGroups = kEnd == LinearEnd::kSiluMul ? 1 : kStreams;  // of 8 columns of out
  static constexpr int kRows = kTile * kGroups;
};

// Asks for the weights of one lane, step after step, tile after tile.
template <class T, LinearEnd kEnd, int kStreams>
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
    const std::int64_t column = static_cast<std::int64_t>(slice_.first) * kChunk + lane_ % 4 * 8;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      constexpr bool kPairs = kEnd == LinearEnd::kSiluMul;
      // Rows past the end repeat the last; they are not stored.
      const int row = min(tile_ * Tile<kEnd, kStreams>::kRows + (kPairs ? 0 : s * kTile) + lane_ / 4, p_.n - 1);
      from_[s] = static_cast<const T*>(p_.w) + (static_cast<std::int64_t>(kPairs ? s : 0) * p_.n + row) * p_.k + column;
    }
  }
  const Problem& p_;
  const Slice& slice_;
  char* const ring_;
  const int lane_;
  int tile_, chunk_ = 0;
  const T* from_[kStreams];
};

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

// The rows of x into shared memory, times the norm weights if there are any, and this thread's share of the squares of
// the rows that its warp loads: row warp / warps_per_row, and the one 8 rows on.
template <class T, int kBatch, bool kNormed, int kLoads>
__device__ void load_x(const Problem& p, char* shared, const Layout& at, float (&sum)[kBatch / 8]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, share = warps_per_row(p.rows);
  const int packs = p.k / 8, stride = share * 32, own = static_cast<int>(threadIdx.x) % stride;
#pragma unroll
  for (int turn = 0; turn < kBatch / 8; ++turn) {
    const int r = warp / share + turn * 8;
    if (r >= p.rows) break;
    auto* const to = reinterpret_cast<T*>(shared + at.x + r * Layout::x_stride_bytes(p.k));
    const T* const from = static_cast<const T*>(p.x) + r * p.x_stride;
    for (int c = own; c < packs; c += stride * kLoads) {
      Pack<T> got[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (c + i * stride < packs) got[i] = load_fresh(from + (c + i * stride) * 8);
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (c + i * stride >= packs) break;
        if constexpr (kNormed) sum[turn] += weigh(got[i], shared + (c + i * stride) * 16);
        store(to + (c + i * stride) * 8, got[i]);
      }
    }
  }
}

// After x is on its way, so that no product waits for it: squares[row * warps_per_row + the warp's place in the row].
template <int kBatch>
__device__ void leave_squares(const Problem& p, const float (&sum)[kBatch / 8], float* squares) {
  const int warp = static_cast<int>(threadIdx.x) / 32, share = warps_per_row(p.rows);
#pragma unroll
  for (int turn = 0; turn < kBatch / 8; ++turn) {
    const float whole = warp_sum(sum[turn]);
    const int r = warp / share + turn * 8;
    if (threadIdx.x % 32 == 0 && r < p.rows) squares[r * share + warp % share] = whole;
  }
}

// What the products of a batch row are multiplied with: 1 / root mean square of x where it is normed.
template <class T>
__device__ float scale_of(const Problem& p, int row, const float* squares) {
  if (p.norm == nullptr) return 1;
  const int share = warps_per_row(p.rows);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += i < share ? squares[row * share + i] : 0;
  return rsqrtf(sum * p.k_inverse + p.eps) * (1 / kNormScale<T>);
}

// One lane's share of a tile: the products of its warp's columns.
template <class T, int kBatch, LinearEnd kEnd, int kStreams>
struct TileSums {
  float at[kStreams][2][4];  // two chains each

  __device__ void add(const Feed<T, kEnd, kStreams>& feed, int stage, const char* x, int x_stride, int rows, int first,
                      int chunks, int lane) {
    const int row = lane / 4;
#pragma unroll
    for (int u = 0; u < Feed<T, kEnd, kStreams>::kChunks; ++u) {
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

// The sum over all warps of one element of a tile.
template <int kBatch, int kStreams>
__device__ float whole_sum(const float* sums, int s, int element) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[(warp * kStreams + s) * kBatch * kTile + element];
  return sum;
}

template <class T, int kBatch, LinearEnd kEnd, class Out, int kStreams, int kRing>
__global__ void __launch_bounds__(kThreads, kBatch == 8 ? 3 : 2) skinny_kernel(const Problem p) {
  using Feeding = Feed<T, kEnd, kStreams>;
  using Tiling = Tile<kEnd, kStreams>;
  constexpr int kXLoads = 6;  // 16-byte loads of x in flight per lane
  constexpr int kElements = kBatch * kTile, kTileFloats = kWarps * kStreams * kElements;
  extern __shared__ __align__(128) char shared[];
  __shared__ float squares[16];
  let_successors_start();
  const Layout at = Layout::of(p.rows, p.k, p.norm != nullptr, kRing, kBatch, kStreams);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Slice slice(p.k, warp, Feeding::kChunks);
  Feeding feed(p, slice, shared + at.ring + warp * kRing * kStepBytes, lane);
  for (int stage = 0; stage < kRing; ++stage) feed.ask(stage);
  if (p.norm != nullptr) fetch_norm<T>(p, shared);
  wait_for_predecessors();
  float own_squares[kBatch / 8]{};
  if (p.norm != nullptr) {
    load_x<T, kBatch, true, kXLoads>(p, shared, at, own_squares);
  } else {
    load_x<T, kBatch, false, kXLoads>(p, shared, at, own_squares);
  }
  __syncthreads();
  if (p.norm != nullptr) leave_squares<kBatch>(p, own_squares, squares);

  // This thread's element of each group of 8 columns, where there are as many threads.
  const int element = static_cast<int>(threadIdx.x) % kElements, group = static_cast<int>(threadIdx.x) / kElements;
  const int batch_row = element / kTile;
  float scale = 0;
  auto* const sums = reinterpret_cast<float*>(shared + at.sums);
  int stage = 0, buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.tiles; tile += static_cast<int>(gridDim.x)) {
    const int column = tile * Tiling::kRows + element % kTile;
    Out* const to = static_cast<Out*>(p.out) + batch_row * p.out_stride;
    Out before{};
    if (kEnd == LinearEnd::kAdd && group == 0 && batch_row < p.rows && column < p.n) before = __ldcg(to + column);
    TileSums<T, kBatch, kEnd, kStreams> tile_sums{};
    for (int step = 0; step < slice.steps; ++step) {
      wait_all_but<kRing - 1>();
      const int chunk = step * Feeding::kChunks;
      tile_sums.add(feed, stage, shared + at.x, Layout::x_stride_bytes(p.k), p.rows, slice.first + chunk,
                    slice.count - chunk, lane);
      feed.ask(stage);
      stage = stage + 1 == kRing ? 0 : stage + 1;
    }
    const float* const from = sums + buffer * kTileFloats;
    tile_sums.leave(sums + buffer * kTileFloats + warp * kStreams * kElements, lane);
    __syncthreads();
    if (tile == static_cast<int>(blockIdx.x) && batch_row < p.rows) scale = scale_of<T>(p, batch_row, squares);
    for (int g = group; g < Tiling::kGroups; g += kThreads / kElements) {
      const int c = column + g * kTile;
      if (batch_row >= p.rows || c >= p.n) break;
      float y = whole_sum<kBatch, kStreams>(from, g, element) * scale;
      if constexpr (kEnd == LinearEnd::kSiluMul) y = silu(y) * (whole_sum<kBatch, kStreams>(from, 1, element) * scale);
      if constexpr (kEnd == LinearEnd::kAdd) y += widen(before);
      to[c] = narrow<Out>(y);
    }
    buffer ^= 1;  // the next tile's sums go elsewhere, so that one barrier a tile is enough
  }
}

using Kernel = void (*)(Problem);

constexpr int kWideStreams = 4;

// What a call compiles to, apart from T.
struct Variant {
  LinearEnd end = LinearEnd::kStore;
  bool many = false, float_out = false;  // more than 8 rows; float32 out
  bool wide = false;                     // tiles of kWideStreams groups, kStore only
  int ring = kDeepRing;                  // as always where wide

  int batch() const { return many ? 16 : 8; }
  int streams() const { return end == LinearEnd::kSiluMul ? 2 : wide ? kWideStreams : 1; }
  int tile_rows() const { return wide ? kTile * kWideStreams : kTile; }
};

template <class T, int kBatch, class Out, int kRing>
Kernel storing_kernel(bool wide) {
  return wide ? skinny_kernel<T, kBatch, LinearEnd::kStore, Out, kWideStreams, kDeepRing>
              : skinny_kernel<T, kBatch, LinearEnd::kStore, Out, 1, kRing>;
}

template <class T, int kBatch, int kRing>
Kernel kernel_with(const Variant& v) {
  switch (v.end) {
    case LinearEnd::kAdd: return skinny_kernel<T, kBatch, LinearEnd::kAdd, T, 1, kRing>;
    case LinearEnd::kSiluMul: return skinny_kernel<T, kBatch, LinearEnd::kSiluMul, T, 2, kRing>;
    case LinearEnd::kStore: break;
  }
  return v.float_out ? storing_kernel<T, kBatch, float, kRing>(v.wide) : storing_kernel<T, kBatch, T, kRing>(v.wide);
}

template <class T>
Kernel kernel_of(const Variant& v) {
  switch (v.ring) {
    case kLongRing: return v.many ? kernel_with<T, 16, kLongRing>(v) : kernel_with<T, 8, kLongRing>(v);
    case kDeepRing: return v.many ? kernel_with<T, 16, kDeepRing>(v) : kernel_with<T, 8, kDeepRing>(v);
    default: return v.many ? kernel_with<T, 16, kShallowRing>(v) : kernel_with<T, 8, kShallowRing>(v);
  }
}

Kernel kernel_for(DType dtype, const Variant& v) {
  return dtype == DType::kBF16 ? kernel_of<Bf16>(v) : kernel_of<F16>(v);
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

// Blocks, and the tiles that they walk over.
struct Shape {
  Variant variant;
  int tiles = 0, blocks = 0, shared_bytes = 0;
};

Shape shape_for(const LinearCall& call) {
  const int rows = static_cast<int>(call.x.shape[0]), k = static_cast<int>(call.x.shape[1]);
  const int columns = static_cast<int>(call.out.shape[1]), processors = multiprocessors();
  Shape shape;
  Variant& v = shape.variant;
  v = {call.end, rows > 8, call.out.dtype != call.x.dtype};
  // Short sums and very many rows: a vocabulary over a small model.
  v.wide = call.end == LinearEnd::kStore && k <= 1024 && columns / (4 * kTile * kWideStreams) >= processors;
  shape.tiles = (columns + v.tile_rows() - 1) / v.tile_rows();
  // Small matrices have a block for each tile, which then reads no other; large ones a block for each multiprocessor.
  const bool large = shape.tiles > 2 * processors;
  shape.blocks = large ? processors : shape.tiles;
  const auto bytes_with = [&](int ring) {
    return Layout::of(rows, k, call.norm.data != nullptr, ring, v.batch(), v.streams()).total;
  };
  const int chunks = (k / kChunk + kWarps - 1) / kWarps, step = kStepLoads / v.streams();
  const int steps = (chunks + step - 1) / step * ((shape.tiles + shape.blocks - 1) / shape.blocks);
  const std::int64_t weight_bytes = call.w.elements() * 2 / shape.blocks;
  const bool pays = large && weight_bytes >= kLongRingBytes && bytes_with(kLongRing) <= kMaxSharedBytes;
  v.ring = v.wide ? kDeepRing : pays ? kLongRing : steps > kShallowRing ? kDeepRing : kShallowRing;
  shape.shared_bytes = bytes_with(v.ring);
  if (large) shape.shared_bytes = std::max(shape.shared_bytes, kOwnMultiprocessorBytes);
  return shape;
}

}  // namespace

bool fits_skinny(const LinearCall& call) {
  const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
  if (call.w.dtype != DType::kBF16 && call.w.dtype != DType::kF16) return false;
  return rows >= 1 && rows <= 16 && k % kChunk == 0 && rows * (k * 2 + 128) <= kMaxXBytes;
}

Status prepare_skinny() {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
      for (const int ring : {kLongRing, kDeepRing, kShallowRing}) {
        for (int bits = 0; bits < 8; ++bits) {
          const Variant v{end, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, ring};
          LEVADA_RETURN_IF_ERROR(
              check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_for(dtype, v)),
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes),
                         "asking for shared memory"));
        }
      }
    }
  }
  return {};
}

Status run_skinny(const LinearCall& call, cudaStream_t stream) {
  const Shape shape = shape_for(call);
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
  p.tiles = shape.tiles;
  p.eps = call.eps;
  p.k_inverse = 1 / static_cast<float>(p.k);
  return launch("linear", kernel_for(call.w.dtype, shape.variant),
                {dim3(static_cast<unsigned>(shape.blocks)), kThreads, static_cast<std::size_t>(shape.shared_bytes)},
                stream, p);
}

}  // namespace levada::kernels::cuda
