#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include "nn/tensor.h"
#include "nn/torch_backend_test.h"
#include "nn/torch_inputs.h"

namespace levada::nn {
namespace {

const TorchInputs& torch(const StepInputs& inputs) { return static_cast<const TorchInputs&>(inputs); }

// [pages, page_size, kv_heads, d] -> [slots, kv_heads, d]
at::Tensor as_slots(const at::Tensor& plane) { return plane.flatten(0, 1); }

class TorchBackend final : public Backend {
 public:
  TorchBackend(at::Device place, at::ScalarType activations) : place_(place), activations_(activations) {}
  std::string name() const override { return "libtorch " + place_.str(); }
  at::Device place() const override { return place_; }
  at::ScalarType activation_type() const override { return activations_; }
  at::ScalarType norm_type() const override { return activations_; }

  std::unique_ptr<StepInputs> prepare(const StepShape& step, const at::Tensor& cos_sin) override {
    return make_torch_inputs(step, cos_sin);
  }
  void embed(const StepInputs& inputs, const Projection& table, const at::Tensor& out) override {
    out.copy_(std::get<at::Tensor>(table.parts.front()).index_select(0, torch(inputs).ids));
  }
  void linear(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) override {
    std::int64_t column = 0;
    for (const Matrix& matrix : w.parts) {
      const at::Tensor& part = std::get<at::Tensor>(matrix);
      at::Tensor columns = out.narrow(1, column, part.size(0));
      if (accumulate) {
        columns.addmm_(x, part.t());
      } else if (columns.is_contiguous()) {
        at::matmul_out(columns, x, part.t());
      } else {
        columns.copy_(at::matmul(x, part.t()));
      }
      column += part.size(0);
    }
  }
  void linear_rough(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) override {
    linear(x, w, out, accumulate);
  }
  void rms_norm(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& out) override {
    out.copy_(at::rms_norm(x, {x.size(1)}, w, eps));
  }
  void rms_norm_heads(const at::Tensor& x, const at::Tensor& w, float eps) override {
    x.copy_(at::rms_norm(x, {x.size(2)}, w, eps));
  }
  void rope(const StepInputs& inputs, const at::Tensor& x) override {
    const at::Tensor &cos = torch(inputs).cos, &sin = torch(inputs).sin;
    const std::int64_t half = x.size(2) / 2;
    const at::Tensor wide = x.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    const at::Tensor first = wide.narrow(2, 0, half), second = wide.narrow(2, half, half);
    x.narrow(2, 0, half).copy_(first.mul(cos).sub_(second.mul(sin)));
    x.narrow(2, half, half).copy_(second.mul(cos).add_(first.mul(sin)));
  }
  void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) override {
    const std::int64_t width = out.size(1);
    at::Tensor target = out;
    at::mul_out(target, at::silu(gate_up.narrow(1, 0, width)), gate_up.narrow(1, width, width));
  }
  void write_kv(const StepInputs& inputs, const at::Tensor& k, const at::Tensor& v, const at::Tensor& k_plane,
                const at::Tensor& v_plane) override {
    as_slots(k_plane).index_copy_(0, torch(inputs).slots, k.to(k_plane.scalar_type()));
    as_slots(v_plane).index_copy_(0, torch(inputs).slots, v.to(v_plane.scalar_type()));
  }
  void paged_attention(const StepInputs& inputs, const at::Tensor& q, const at::Tensor& k_plane,
                       const at::Tensor& v_plane, float scale, const at::Tensor& out) override {
    const at::Tensor keys = as_slots(k_plane), values = as_slots(v_plane);
    if (const auto& single = torch(inputs).single) {
      const std::int64_t count = single->rows.size(0);
      auto gather = [&](const at::Tensor& plane) {  // -> [S, kv_heads, longest, d]
        return plane.index_select(0, single->slots)
            .view({count, single->longest, plane.size(1), plane.size(2)})
            .transpose(1, 2)
            .to(q.scalar_type());
      };
      const at::Tensor query = q.index_select(0, single->rows).unsqueeze(2);
      const at::Tensor answer = at::scaled_dot_product_attention(query, gather(keys), gather(values), single->mask, 0.0,
                                                                 false, scale, /*enable_gqa=*/true);
      at::Tensor target = out;
      target.index_copy_(0, single->rows, answer.squeeze(2));
    }
    for (const TorchInputs::Chunk& chunk : torch(inputs).chunks) attend(chunk, q, keys, values, scale, out);
  }
  void gather_rows(const at::Tensor& x, std::span<const std::int32_t> rows, const at::Tensor& out) override {
    const at::Tensor host =
        at::from_blob(const_cast<std::int32_t*>(rows.data()), {static_cast<std::int64_t>(rows.size())},
                      at::TensorOptions().dtype(at::kInt));
    at::Tensor target = out;
    at::index_select_out(target, x, 0, host.to(x.device()));
  }

 private:
  static void attend(const TorchInputs::Chunk& chunk, const at::Tensor& q, const at::Tensor& keys,
                     const at::Tensor& values, float scale, const at::Tensor& out) {
    auto gather = [&](const at::Tensor& plane) {  // -> [1, kv_heads, length, d]
      return plane.index_select(0, chunk.slots).transpose(0, 1).unsqueeze(0).to(q.scalar_type());
    };
    const at::Tensor query = q.narrow(0, chunk.first_row, chunk.rows).transpose(0, 1).unsqueeze(0);
    std::optional<at::Tensor> mask;
    if (chunk.mask.defined()) mask = chunk.mask;
    const at::Tensor answer = at::scaled_dot_product_attention(query, gather(keys), gather(values), mask, 0.0,
                                                               /*is_causal=*/!mask, scale, /*enable_gqa=*/true);
    out.narrow(0, chunk.first_row, chunk.rows).copy_(answer.squeeze(0).transpose(0, 1));
  }

  at::Device place_;
  at::ScalarType activations_;
};

}  // namespace

std::unique_ptr<Backend> make_torch_backend(at::Device place, at::ScalarType activations) {
  return std::make_unique<TorchBackend>(place, activations);
}

}  // namespace levada::nn
