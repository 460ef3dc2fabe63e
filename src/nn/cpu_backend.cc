#include <cstring>

#include "nn/backend.h"
#include "nn/tensor.h"

namespace levada::nn {

std::int64_t Projection::out_features() const {
  std::int64_t features = 0;
  for (const at::Tensor& part : parts) features += part.size(0);
  for (const auto& matrix : quantised) features += matrix->rows();
  return features;
}

namespace {

struct CpuInputs final : StepInputs {
  StepShape step;
  device::TensorView cos_sin;
};

const CpuInputs& cpu(const StepInputs& inputs) { return static_cast<const CpuInputs&>(inputs); }

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(kernels::Ops& ops) : ops_(ops) {}
  std::string name() const override { return "cpu " + ops_.name(); }
  at::Device place() const override { return at::kCPU; }
  at::ScalarType activation_type() const override { return at::kFloat; }
  at::ScalarType norm_type() const override { return at::kFloat; }

  std::unique_ptr<StepInputs> prepare(const StepShape& step, const at::Tensor& cos_sin) override {
    auto inputs = std::make_unique<CpuInputs>();
    inputs->step = step;
    inputs->cos_sin = view(cos_sin);
    return inputs;
  }
  void embed(const StepInputs& inputs, const Projection& table, const at::Tensor& out) override {
    const std::span<const std::int32_t> ids = cpu(inputs).step.ids;
    if (!table.quantised.empty()) return ops_.embed(*table.quantised.front(), ids, view(out));
    ops_.embed(view(table.parts.front()), ids, view(out));
  }
  void linear(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) override {
    const device::TensorView rows = view(x);
    device::TensorView columns = view(out);
    const auto compute = [&](std::int64_t features, const auto& matrix) {
      columns.shape[1] = features;
      ops_.linear(rows, matrix, columns, accumulate);
      columns.data = columns.as<float>() + features;
    };
    for (const at::Tensor& part : w.parts) compute(part.size(0), view(part));
    for (const auto& matrix : w.quantised) compute(matrix->rows(), *matrix);
  }
  void rms_norm(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& out) override {
    ops_.rms_norm(view(x), view(w), eps, view(out));
  }
  void rms_norm_heads(const at::Tensor& x, const at::Tensor& w, float eps) override {
    ops_.rms_norm_heads(view(x), view(w), eps);
  }
  void rope(const StepInputs& inputs, const at::Tensor& x) override {
    ops_.rope(view(x), cpu(inputs).cos_sin, cpu(inputs).step.positions);
  }
  void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) override { ops_.silu_mul(view(gate_up), view(out)); }
  void write_kv(const StepInputs& inputs, const at::Tensor& k, const at::Tensor& v, const at::Tensor& k_plane,
                const at::Tensor& v_plane) override {
    ops_.write_kv(view(k), view(v), cpu(inputs).step.batch, view(k_plane), view(v_plane));
  }
  void paged_attention(const StepInputs& inputs, const at::Tensor& q, const at::Tensor& k_plane,
                       const at::Tensor& v_plane, float scale, const at::Tensor& out) override {
    ops_.paged_attention(view(q), cpu(inputs).step.batch, view(k_plane), view(v_plane), scale, view(out));
  }
  void gather_rows(const at::Tensor& x, std::span<const std::int32_t> rows, const at::Tensor& out) override {
    const device::TensorView from = view(x), to = view(out);
    const auto bytes = static_cast<std::size_t>(from.shape[1]) * sizeof(float);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(to.as<float>() + static_cast<std::int64_t>(i) * to.strides[0],
                  from.as<float>() + rows[i] * from.strides[0], bytes);
    }
  }

 private:
  kernels::Ops& ops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(kernels::Ops& ops) { return std::make_unique<CpuBackend>(ops); }

}  // namespace levada::nn
