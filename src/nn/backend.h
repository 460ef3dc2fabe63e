// What: Backend, the operations a decoder layer is made of on the CPU, over at::Tensor.
// Owner: the model owns its backend; a StepInputs belongs to one forward step and must not outlive the plan behind it.
// Thread: one step at a time, on the worker's thread.
// Invariant: the same formulas whatever the backend (docs/models.md); outputs are written to memory
// the caller owns.
// Activations are float32. Torch exceptions pass through. (On CUDA: model/cuda, without libtorch.)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/ops.h"

namespace levada::nn {

// [out, in]: plain numbers or, on the CPU, as a GGUF file stores them.
using Matrix = std::variant<at::Tensor, std::shared_ptr<const kernels::QuantMatrix>>;

// One linear map whose output features may lie in several matrices, one behind the other: q, k and v as the file has
// them, or fused.
struct Projection {
  std::vector<Matrix> parts;
  std::int64_t out_features() const;
};

// What a step computes, in host memory.
struct StepShape {
  kernels::PagedBatch batch;
  std::span<const std::int32_t> ids, positions;  // one per row
};

// A step's integers where the backend wants them.
class StepInputs {
 public:
  virtual ~StepInputs() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual at::Device place() const = 0;
  virtual at::ScalarType activation_type() const = 0;
  // What norm weights must be stored as.
  virtual at::ScalarType norm_type() const = 0;

  // cos_sin: f32 [positions, head_dim], half cosines, half sines; must outlive the inputs.
  virtual std::unique_ptr<StepInputs> prepare(const StepShape& step, const at::Tensor& cos_sin) = 0;

  // out[r] = table[ids[r]]; the table is one matrix.
  virtual void embed(const StepInputs& inputs, const Projection& table, const at::Tensor& out) = 0;
  // out = x w^T, added to out if accumulate. x [R, in], out [R, sum of parts].
  virtual void linear(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) = 0;
  // The same where errors cost time and nothing else: see kernels::Ops::linear_rough().
  virtual void linear_rough(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) = 0;
  virtual void rms_norm(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& out) = 0;
  // In place, per head: x [R, heads, d].
  virtual void rms_norm_heads(const at::Tensor& x, const at::Tensor& w, float eps) = 0;
  // Half-split rotation in place: x [R, heads, d].
  virtual void rope(const StepInputs& inputs, const at::Tensor& x) = 0;
  virtual void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) = 0;
  // k, v [R, kv_heads, d]; planes [pages, page_size, kv_heads, d].
  virtual void write_kv(const StepInputs& inputs, const at::Tensor& k, const at::Tensor& v, const at::Tensor& k_plane,
                        const at::Tensor& v_plane) = 0;
  // q, out [R, heads, d].
  virtual void paged_attention(const StepInputs& inputs, const at::Tensor& q, const at::Tensor& k_plane,
                               const at::Tensor& v_plane, float scale, const at::Tensor& out) = 0;
  // out[i] = x[rows[i]]
  virtual void gather_rows(const at::Tensor& x, std::span<const std::int32_t> rows, const at::Tensor& out) = 0;
};

// `ops` must outlive the backend.
std::unique_ptr<Backend> make_cpu_backend(kernels::Ops& ops);

}  // namespace levada::nn
