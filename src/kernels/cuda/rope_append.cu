#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxHeadDim = 256;
constexpr int kPairs = kMaxHeadDim / 2 / 32 / 2;  // a lane's adjacent two of the first half, with their partners

struct Geometry {
  std::int64_t row_stride, capacity;  // of qkv; slots in a plane
  std::int64_t slot_stride;           // of the planes
  int heads, kv_heads, head_dim, page_size;
  float eps, k_inverse, v_inverse;
  float* page_scales;  // or null
};

template <class T>
struct Arguments {
  T* qkv;
  const float *q_norm, *k_norm, *cos_sin;
  const std::int32_t *positions, *slots;
};

// A lane's values of one head: [pair][0, 1] of the first half, [pair][2, 3] their partners of the second.
struct Head {
  float at[kPairs][4];
};

template <class T>
__device__ void load_head(const T* from, int half, int lane, Head& head) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int j = (p * 32 + lane) * 2;
    for (int e = 0; e < 2; ++e) {
      head.at[p][e] = j < half ? widen(__ldcg(from + j + e)) : 0.0f;
      head.at[p][2 + e] = j < half ? widen(__ldcg(from + half + j + e)) : 0.0f;
    }
  }
}

template <class T>
__device__ void store_head(T* to, int half, int lane, const Head& head, float scale) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int j = (p * 32 + lane) * 2;
    if (j >= half) break;
    for (int e = 0; e < 2; ++e) {
      to[j + e] = narrow<T>(head.at[p][e] * scale);
      to[half + j + e] = narrow<T>(head.at[p][2 + e] * scale);
    }
  }
}

// As Head: cosines of a lane's two positions, then their sines.
__device__ Head load_rotation(const float* cos_sin, int half, int lane) {
  Head rotation{};
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int j = (p * 32 + lane) * 2;
    if (j >= half) break;
    for (int e = 0; e < 2; ++e) {
      rotation.at[p][e] = __ldg(cos_sin + j + e);
      rotation.at[p][2 + e] = __ldg(cos_sin + half + j + e);
    }
  }
  return rotation;
}

__device__ void norm_head(const float* weight, float eps, int half, int lane, Head& head) {
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    for (int e = 0; e < 4; ++e) squares += head.at[p][e] * head.at[p][e];
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(2 * half) + eps);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int j = (p * 32 + lane) * 2;
    if (j >= half) break;
    for (int e = 0; e < 2; ++e) {
      head.at[p][e] *= scale * weight[j + e];
      head.at[p][2 + e] *= scale * weight[half + j + e];
    }
  }
}

__device__ void rotate_head(const Head& rotation, Head& head) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    for (int e = 0; e < 2; ++e) {
      const float a = head.at[p][e], b = head.at[p][2 + e], c = rotation.at[p][e], s = rotation.at[p][2 + e];
      head.at[p][e] = a * c - b * s;
      head.at[p][2 + e] = b * c + a * s;
    }
  }
}

// A warp per head of a row and layer: q heads, then k heads, then v heads.
template <class T, class Kv>
__global__ void __launch_bounds__(kWarps * 32)
    rope_append_kernel(Arguments<T> a, Kv* k_plane, Kv* v_plane, Geometry g) {
  let_successors_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int h = static_cast<int>(blockIdx.y) * kWarps + warp;
  if (h >= g.heads + 2 * g.kv_heads) return;
  const std::int64_t row = blockIdx.x, layer = blockIdx.z;
  const int half = g.head_dim / 2;
  T* const own = a.qkv + row * g.row_stride + (layer * (g.heads + 2 * g.kv_heads) + h) * g.head_dim;
  const bool is_q = h < g.heads, is_v = h >= g.heads + g.kv_heads;
  // The step's integers were sent before its first kernel: no predecessor writes them.
  const std::int64_t slot = __ldcg(a.slots + row);
  const Head rotation = load_rotation(a.cos_sin + std::int64_t{__ldcg(a.positions + row)} * g.head_dim, half, lane);
  wait_for_predecessors();
  Head head;
  load_head(own, half, lane, head);
  if (!is_v) {
    if (a.k_norm != nullptr) norm_head((is_q ? a.q_norm : a.k_norm) + layer * g.head_dim, g.eps, half, lane, head);
    rotate_head(rotation, head);
    store_head(own, half, lane, head, 1.0f);
  }
  if (is_q) return;
  if (slot < 0 || slot >= g.capacity) return;
  const int kv_head = is_v ? h - g.heads - g.kv_heads : h - g.heads;
  Kv* const plane = (is_v ? v_plane : k_plane) + layer * g.capacity * g.slot_stride;
  float inverse = is_v ? g.v_inverse : g.k_inverse;
  if (g.page_scales != nullptr) inverse = 1 / __ldcg(g.page_scales + slot / g.page_size * kPageScales + (is_v ? 1 : 0));
  store_head(plane + slot * g.slot_stride + kv_head * g.head_dim, half, lane, head, inverse);
}

__device__ float largest_of(const Head& head) {
  float largest = 0;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(head.at[p][e]));
  }
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  return largest;
}

// A block per row: where it is the first of a page, the scales that its keys and values give the page.
template <class T>
__global__ void __launch_bounds__(kWarps * 32) page_scales_kernel(Arguments<T> a, Geometry g) {
  __shared__ float largest[2][kWarps];
  let_successors_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = blockIdx.x, slot = __ldcg(a.slots + row);
  wait_for_predecessors();  // all blocks, so that the kernel after this one doesn't overtake the one before it
  if (slot < 0 || slot >= g.capacity || slot % g.page_size != 0) return;
  const int half = g.head_dim / 2;
  const Head rotation = load_rotation(a.cos_sin + std::int64_t{__ldcg(a.positions + row)} * g.head_dim, half, lane);
  float keys = 0, values = 0;
  for (int h = warp; h < 2 * g.kv_heads; h += kWarps) {
    Head head;
    load_head(a.qkv + row * g.row_stride + std::int64_t{g.heads + h} * g.head_dim, half, lane, head);
    const bool is_v = h >= g.kv_heads;
    if (!is_v) {
      if (a.k_norm != nullptr) norm_head(a.k_norm, g.eps, half, lane, head);
      rotate_head(rotation, head);
    }
    float& most = is_v ? values : keys;
    most = fmaxf(most, largest_of(head));
  }
  if (lane == 0) {
    largest[0][warp] = keys;
    largest[1][warp] = values;
  }
  __syncthreads();
  if (threadIdx.x >= 2) return;
  float most = 0;
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, largest[threadIdx.x][w]);
  const bool usable = most >= kLeastFirstToken && most < INFINITY;
  g.page_scales[slot / g.page_size * kPageScales + threadIdx.x] = usable ? most / kFirstTokenLargest : 1.0f;
}

bool is_plane(const TensorView& plane, const RopeAppend& call) {
  const std::int64_t token = std::int64_t{call.kv_heads} * call.head_dim;
  return plane.rank == 4 && plane.place == device::DeviceKind::kCuda && plane.shape[2] == call.kv_heads &&
         plane.shape[3] == call.head_dim && plane.strides[3] == 1 && plane.strides[2] == call.head_dim &&
         plane.strides[1] >= token && plane.strides[0] == plane.strides[1] * plane.shape[1] &&
         (plane.dtype == call.qkv.dtype || plane.dtype == DType::kF8E4M3);
}

Status check(const RopeAppend& call) {
  constexpr const char* kName = "rope_append";
  LEVADA_RETURN_IF_ERROR(expect(call.heads >= 0 && call.kv_heads >= 1 && call.head_dim >= 4 && call.head_dim % 4 == 0 &&
                                    call.head_dim <= kMaxHeadDim,
                                kName, "at least one key head, head_dim a multiple of 4 and at most 256"));
  LEVADA_RETURN_IF_ERROR(expect(call.layers == 1 || (call.layers > 1 && call.heads == 0 && !call.scales.by_page()),
                                kName, "several layers where there are no q heads and no scales of pages"));
  const std::int64_t width = call.layers * (call.heads + 2 * std::int64_t{call.kv_heads}) * call.head_dim;
  LEVADA_RETURN_IF_ERROR(expect(call.qkv.rank == 2 && call.qkv.place == device::DeviceKind::kCuda &&
                                    is_activation(call.qkv.dtype) && call.qkv.shape[1] == width &&
                                    call.qkv.strides[1] == 1 && call.qkv.strides[0] >= width,
                                kName, "qkv is [R, layers * (heads + 2 kv_heads) * head_dim]"));
  const bool bare = call.q_norm.data == nullptr && call.k_norm.data == nullptr;
  const bool queries = call.heads == 0 || is_vector(call.q_norm, DType::kF32, call.head_dim);
  LEVADA_RETURN_IF_ERROR(expect(bare || (queries && is_vector(call.k_norm, DType::kF32, call.layers * call.head_dim)),
                                kName, "q_norm and k_norm are both float32 [layers * head_dim], or both absent"));
  LEVADA_RETURN_IF_ERROR(expect(call.cos_sin.rank == 2 && call.cos_sin.dtype == DType::kF32 &&
                                    call.cos_sin.place == device::DeviceKind::kCuda &&
                                    call.cos_sin.shape[1] == call.head_dim && call.cos_sin.strides[0] == call.head_dim,
                                kName, "cos_sin is float32 [max_positions, head_dim]"));
  LEVADA_RETURN_IF_ERROR(expect(is_vector(call.positions, DType::kI32, call.qkv.shape[0]) &&
                                    is_vector(call.slots, DType::kI32, call.qkv.shape[0]),
                                kName, "positions and slots are int32 [R]"));
  LEVADA_RETURN_IF_ERROR(
      expect(is_plane(call.k_plane, call) && is_plane(call.v_plane, call) && call.k_plane.dtype == call.v_plane.dtype &&
                 call.k_plane.shape == call.v_plane.shape,
             kName, "the planes are alike, [pages, page_size, kv_heads, head_dim], qkv's type or f8"));
  LEVADA_RETURN_IF_ERROR(
      expect(call.k_plane.strides[1] == call.v_plane.strides[1], kName, "the planes' tokens lie alike"));
  return check_scales(call.scales, call.k_plane, kName);
}

template <class T, class Kv>
Status launch_typed(const RopeAppend& call, cudaStream_t stream) {
  const Geometry geometry{call.qkv.strides[0],
                          call.k_plane.shape[0] * call.k_plane.shape[1],
                          call.k_plane.strides[1],
                          call.heads,
                          call.kv_heads,
                          call.head_dim,
                          static_cast<int>(call.k_plane.shape[1]),
                          call.eps,
                          1 / call.scales.k,
                          1 / call.scales.v,
                          call.scales.page.as<float>()};
  const Arguments<T> arguments{call.qkv.as<T>(),
                               call.q_norm.as<const float>(),
                               call.k_norm.as<const float>(),
                               call.cos_sin.as<const float>(),
                               call.positions.as<const std::int32_t>(),
                               call.slots.as<const std::int32_t>()};
  if (call.scales.by_page()) {
    LEVADA_RETURN_IF_ERROR(launch("page_scales", page_scales_kernel<T>,
                                  {dim3(static_cast<unsigned>(call.qkv.shape[0])), kWarps * 32}, stream, arguments,
                                  geometry));
  }
  const auto blocks = static_cast<unsigned>((call.heads + 2 * call.kv_heads + kWarps - 1) / kWarps);
  return launch(
      "rope_append", rope_append_kernel<T, Kv>,
      {dim3(static_cast<unsigned>(call.qkv.shape[0]), blocks, static_cast<unsigned>(call.layers)), kWarps * 32}, stream,
      arguments, call.k_plane.as<Kv>(), call.v_plane.as<Kv>(), geometry);
}

template <class T>
Status launch_for(const RopeAppend& call, cudaStream_t stream) {
  if (call.k_plane.dtype == DType::kF8E4M3) return launch_typed<T, F8>(call, stream);
  return launch_typed<T, T>(call, stream);
}

}  // namespace

Status rope_append(const RopeAppend& call, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(check(call));
  if (call.qkv.shape[0] == 0) return {};
  switch (call.qkv.dtype) {
    case DType::kBF16: return launch_for<Bf16>(call, stream);
    case DType::kF16: return launch_for<F16>(call, stream);
    default: return launch_for<float>(call, stream);
  }
}

}  // namespace levada::kernels::cuda
