#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kPacksPerThread = 4;  // a row of the norms stays in registers

// Calls f with a null pointer of the C++ type that stores `dtype`.
template <class F>
Status with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(static_cast<Bf16*>(nullptr));
    case DType::kF16: return f(static_cast<F16*>(nullptr));
    case DType::kF32: return f(static_cast<float*>(nullptr));
    default: return invalid_argument("the activations are bfloat16, float16 or float32");
  }
}

template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  explicit Rows(const TensorView& view) : data(view.as<T>()), stride(view.strides[0]) {}
  __device__ T* row(std::int64_t r) const { return data + r * stride; }
};

unsigned threads_for(std::int64_t items) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + 31) / 32 * 32, 32, kMaxThreads));
}

// The sum over all threads of the block, known to each of them.
__device__ float block_sum(float x) {
  __shared__ float sums[kMaxThreads / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  return warp_sum(lane < warps ? sums[lane] : 0.0f);
}

template <class T>
__device__ Pack<T> sum_of(const Pack<T>& a, const Pack<T>& b) {
  Pack<T> sum;
#pragma unroll
  for (int e = 0; e < Pack<T>::kSize; ++e) sum.at[e] = narrow<T>(widen(a.at[e]) + widen(b.at[e]));
  return sum;
}

template <class T, bool kWithDelta>
__global__ void norm_kernel(Rows<T> x, Rows<T> delta, const float* weight, float eps, Rows<T> out, int width) {
  let_successors_start();
  wait_for_predecessors();
  constexpr int kSize = Pack<T>::kSize;
  T* const from = x.row(blockIdx.x);
  Pack<T> packs[kPacksPerThread];
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacksPerThread; ++p) {
    const int at = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kSize;
    if (at >= width) break;
    packs[p] = load_fresh(from + at);
    if constexpr (kWithDelta) {
      packs[p] = sum_of(packs[p], load_fresh(delta.row(blockIdx.x) + at));
      store(from + at, packs[p]);
    }
    for (int e = 0; e < kSize; ++e) squares += widen(packs[p].at[e]) * widen(packs[p].at[e]);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(width) + eps);
#pragma unroll
  for (int p = 0; p < kPacksPerThread; ++p) {
    const int at = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kSize;
    if (at >= width) break;
    for (int e = 0; e < kSize; ++e) packs[p].at[e] = narrow<T>(widen(packs[p].at[e]) * scale * weight[at + e]);
    store(out.row(blockIdx.x) + at, packs[p]);
  }
}

template <bool kWithDelta>
Status launch_norm(const TensorView& x, const TensorView& delta, const TensorView& weight, float eps,
                   const TensorView& out, cudaStream_t stream) {
  return with_type(x.dtype, [&]<class T>(T*) {
    const std::int64_t width = x.shape[1], packs = width / Pack<T>::kSize;
    LEVADA_RETURN_IF_ERROR(expect(packs <= kMaxThreads * kPacksPerThread, "rms_norm", "rows are at most 64 KiB wide"));
    if (x.shape[0] == 0) return Status();
    return launch("rms_norm", norm_kernel<T, kWithDelta>, {dim3(static_cast<unsigned>(x.shape[0])), threads_for(packs)},
                  stream, Rows<T>(x), Rows<T>(delta), weight.as<const float>(), eps, Rows<T>(out),
                  static_cast<int>(width));
  });
}

Status check_norm(const TensorView& x, const TensorView& weight, const TensorView& out) {
  LEVADA_RETURN_IF_ERROR(
      expect(is_packed_rows(x) && is_activation(x.dtype), "rms_norm", "x is [R, H] in 16-byte packs"));
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(out) && out.dtype == x.dtype && out.shape == x.shape, "rms_norm",
                                "out has x's shape and type"));
  return expect(is_vector(weight, DType::kF32, x.shape[1]), "rms_norm", "weight is float32 [H]");
}

template <class T, class Out>
__global__ void gather_kernel(Rows<T> x, const std::int32_t* rows, Rows<Out> out, int count, int width) {
  let_successors_start();
  wait_for_predecessors();
  const int row = __ldcg(rows + blockIdx.x);
  const bool known = row >= 0 && row < count;
  for (int at = static_cast<int>(threadIdx.x) * Pack<T>::kSize; at < width;
       at += static_cast<int>(blockDim.x) * Pack<T>::kSize) {
    Pack<T> pack{};
    if (known) pack = load_fresh(x.row(row) + at);
    Out* const to = out.row(blockIdx.x) + at;
    if constexpr (std::is_same_v<T, Out>) {
      store(to, pack);
    } else {
      for (int e = 0; e < Pack<T>::kSize; ++e) to[e] = narrow<Out>(widen(pack.at[e]));
    }
  }
}

template <class T>
__global__ void silu_mul_kernel(Rows<T> gate_up, Rows<T> out, int width) {
  let_successors_start();
  wait_for_predecessors();
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * Pack<T>::kSize;
  if (at >= width) return;
  const T* const from = gate_up.row(blockIdx.y) + at;
  Pack<T> gate = load_fresh(from);
  const Pack<T> up = load_fresh(from + width);
#pragma unroll
  for (int e = 0; e < Pack<T>::kSize; ++e) gate.at[e] = narrow<T>(silu(widen(gate.at[e])) * widen(up.at[e]));
  store(out.row(blockIdx.y) + at, gate);
}

template <class T, class Out>
__global__ void convert_kernel(Rows<T> x, Rows<Out> out, int width) {
  let_successors_start();
  wait_for_predecessors();
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < width) out.row(blockIdx.y)[at] = narrow<Out>(widen(__ldcg(x.row(blockIdx.y) + at)));
}

// blockIdx.y counts rows: at most 65535 of them a launch.
template <class F>
Status by_row_blocks(std::int64_t rows, F&& launch_rows) {
  constexpr std::int64_t kMost = 65535;
  for (std::int64_t first = 0; first < rows; first += kMost) {
    LEVADA_RETURN_IF_ERROR(launch_rows(first, std::min(kMost, rows - first)));
  }
  return {};
}

TensorView rows_of(TensorView view, std::int64_t first, std::int64_t count) {
  view.data = view.as<char>() + first * view.strides[0] * static_cast<std::int64_t>(bytes_of(view.dtype));
  view.shape[0] = count;
  return view;
}

}  // namespace

Status embed(const TensorView& table, const TensorView& ids, const TensorView& out, cudaStream_t stream) {
  return gather_rows(table, ids, out, stream);
}

Status rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(check_norm(x, weight, out));
  return launch_norm<false>(x, x, weight, eps, out, stream);
}

Status add_rms_norm(const TensorView& x, const TensorView& delta, const TensorView& weight, float eps,
                    const TensorView& out, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(check_norm(x, weight, out));
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(delta) && delta.dtype == x.dtype && delta.shape == x.shape,
                                "add_rms_norm", "delta has x's shape and type"));
  return launch_norm<true>(x, delta, weight, eps, out, stream);
}

Status silu_mul(const TensorView& gate_up, const TensorView& out, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(out) && is_activation(out.dtype), "silu_mul", "out is [R, I] in packs"));
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(gate_up) && gate_up.dtype == out.dtype &&
                                    gate_up.shape[0] == out.shape[0] && gate_up.shape[1] == 2 * out.shape[1],
                                "silu_mul", "gate_up is [R, 2I] of out's type"));
  return with_type(out.dtype, [&]<class T>(T*) {
    const auto width = static_cast<int>(out.shape[1]);
    const unsigned threads = std::min(256u, threads_for(width / Pack<T>::kSize));
    const auto blocks = static_cast<unsigned>((width / Pack<T>::kSize + threads - 1) / threads);
    return by_row_blocks(out.shape[0], [&](std::int64_t first, std::int64_t count) {
      return launch("silu_mul", silu_mul_kernel<T>, {dim3(blocks, static_cast<unsigned>(count)), threads}, stream,
                    Rows<T>(rows_of(gate_up, first, count)), Rows<T>(rows_of(out, first, count)), int{width});
    });
  });
}

Status gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(x) && is_activation(x.dtype), "gather_rows", "x is [X, H] in packs"));
  LEVADA_RETURN_IF_ERROR(
      expect(is_packed_rows(out) && (out.dtype == x.dtype || out.dtype == DType::kF32) && out.shape[1] == x.shape[1],
             "gather_rows", "out is [R, H] of x's type or float32"));
  LEVADA_RETURN_IF_ERROR(
      expect(is_vector(rows, DType::kI32, out.shape[0]), "gather_rows", "rows is int32, one entry per row of out"));
  if (out.shape[0] == 0) return {};
  return with_type(x.dtype, [&]<class T>(T*) {
    const auto go = [&]<class Out>(Out*) {
      return launch("gather_rows", gather_kernel<T, Out>,
                    {dim3(static_cast<unsigned>(out.shape[0])), threads_for(x.shape[1] / Pack<T>::kSize)}, stream,
                    Rows<T>(x), rows.as<const std::int32_t>(), Rows<Out>(out), static_cast<int>(x.shape[0]),
                    static_cast<int>(x.shape[1]));
    };
    return out.dtype == x.dtype ? go(static_cast<T*>(nullptr)) : go(static_cast<float*>(nullptr));
  });
}

Status convert(const TensorView& x, const TensorView& out, cudaStream_t stream) {
  const auto is_rows = [](const TensorView& v) {
    return v.rank == 2 && v.place == device::DeviceKind::kCuda && is_activation(v.dtype) && v.strides[1] == 1;
  };
  LEVADA_RETURN_IF_ERROR(expect(is_rows(x) && is_rows(out) && x.shape == out.shape, "convert", "x and out are [R, H]"));
  return with_type(x.dtype, [&]<class T>(T*) {
    return with_type(out.dtype, [&]<class Out>(Out*) {
      const auto width = static_cast<int>(x.shape[1]);
      const auto blocks = static_cast<unsigned>((width + 255) / 256);
      return by_row_blocks(width > 0 ? x.shape[0] : 0, [&](std::int64_t first, std::int64_t count) {
        return launch("convert", convert_kernel<T, Out>, {dim3(blocks, static_cast<unsigned>(count)), 256}, stream,
                      Rows<T>(rows_of(x, first, count)), Rows<Out>(rows_of(out, first, count)), int{width});
      });
    });
  });
}

}  // namespace levada::kernels::cuda
