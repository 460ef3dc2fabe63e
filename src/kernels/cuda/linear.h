// What: Linears, every matrix product of a decoder on CUDA: out = x w^T with the norm before it and the residual or
// SiLU after it. Few rows run through our own kernel near the memory's speed, more rows through cuBLASLt.
// Owner: the engine worker; owns the cuBLASLt handle, its workspace and the scratch rows. Weights are the caller's.
// Thread: one, on one stream at a time (the scratch is shared by successive calls).
// Invariant: run() allocates nothing and may be captured in a CUDA graph; a call that its shapes don't allow is refused
// before anything is launched. Which algorithm runs for a shape is fixed by its first use, tune() or load_plans().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

using device::TensorView;

enum class LinearEnd : std::uint8_t {
  kStore,    // out = y
  kAdd,      // out += y: the residual stream
  kSiluMul,  // out[:, i] = silu(y[:, i]) * y[:, N/2 + i]: w is gate rows, then up rows
};

// One product y = norm(x) w^T. T: bf16, f16 or f32.
struct LinearCall {
  TensorView x;        // T [R, K], rows may be strided by a multiple of 8 elements
  TensorView w;        // T [N, K] contiguous; or f8_e4m3 with w_scale (T bf16, out bf16, K a multiple of 128)
  TensorView w_scale;  // f32 [N/128 rounded up, K/128 rounded up to a multiple of 4]; no data unless w is f8
  TensorView
      norm;  // f32 [K]: x is RMS-normed with these weights (rounded to T where rows are few) first; no data: as is
  float eps = 0;
  LinearEnd end = LinearEnd::kStore;
  TensorView out;  // [R, N], kSiluMul: [R, N/2]; T, or f32 with kStore (logits)
};

struct LinearsOptions {
  std::int64_t max_rows = 0;        // of any call
  std::int64_t max_norm_width = 0;  // largest K of a call with a norm
  std::int64_t max_pair_width = 0;  // largest N of a call with kSiluMul or f8 weights
  std::int64_t max_f8_width = 0;    // largest K of a call with f8 weights; 0: there are none
  DType dtype = DType::kBF16;       // T
};

class Linears {
 public:
  // On the current device. kUnavailable without cuBLASLt, kResourceExhausted without the memory.
  static Result<std::unique_ptr<Linears>> create(const LinearsOptions& options);
  virtual ~Linears() = default;

  virtual Status run(const LinearCall& call, cudaStream_t stream) = 0;

  // Measures the algorithms for the shape that all `calls` share (give one per layer, so that weights are not read from
  // the cache) and keeps the fastest. Overwrites the outs. Nothing to do for shapes that our own kernel takes or that a
  // plan covers already; returns whether it measured.
  virtual Result<bool> tune(std::span<const LinearCall> calls, cudaStream_t stream) = 0;

  // The tuned choices as text, one line each, and the way back. Plans of another cuBLASLt version or GPU are refused as
  // a whole (kFailedPrecondition), damaged ones with kDataLoss.
  virtual std::string save_plans() const = 0;
  virtual Status load_plans(std::string_view text) = 0;

  // How many shapes have a measured choice.
  virtual std::size_t measured_plans() const = 0;

  // Device memory held: workspace and scratch.
  virtual std::size_t bytes() const = 0;
};

}  // namespace levada::kernels::cuda
