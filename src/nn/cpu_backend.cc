#include <cstring>
#include <type_traits>

#include "nn/backend.h"
#include "nn/tensor.h"

namespace levada::nn {

namespace {

std::int64_t rows_of(const at::Tensor& matrix) { return matrix.size(0); }
std::int64_t rows_of(const std::shared_ptr<const kernels::QuantMatrix>& matrix) { return matrix->rows(); }
device::TensorView operand(const at::Tensor& matrix) { return view(matrix); }
const kernels::QuantMatrix& operand(const std::shared_ptr<const kernels::QuantMatrix>& matrix) { return *matrix; }

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
    std::visit([&](const auto& matrix) { ops_.embed(operand(matrix), ids, view(out)); }, table.parts.front());
  }
  void linear(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) override {
    each_part(w, out, [&](const auto& matrix, const device::TensorView& columns) {
      ops_.linear(view(x), operand(matrix), columns, accumulate);
    });
  }
  void linear_rough(const at::Tensor& x, const Projection& w, const at::Tensor& out, bool accumulate) override {
    each_part(w, out, [&](const auto& matrix, const device::TensorView& columns) {
      if constexpr (std::is_same_v<std::decay_t<decltype(matrix)>, at::Tensor>) {
        ops_.linear(view(x), operand(matrix), columns, accumulate);
      } else {
        ops_.linear_rough(view(x), operand(matrix), columns, accumulate);
      }
    });
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
  // Every matrix of w with its columns of out.
  template <class Compute>
  static void each_part(const Projection& w, const at::Tensor& out, const Compute& compute) {
    device::TensorView columns = view(out);
    for (const Matrix& part : w.parts) {
      std::visit(
          [&](const auto& matrix) {
            columns.shape[1] = rows_of(matrix);
            compute(matrix, columns);
            columns.data = columns.as<float>() + columns.shape[1];
          },
          part);
    }
  }

  kernels::Ops& ops_;
};

}  // namespace

std::int64_t Projection::out_features() const {
  std::int64_t features = 0;
  for (const Matrix& part : parts) features += std::visit([](const auto& matrix) { return rows_of(matrix); }, part);
  return features;
}

std::unique_ptr<Backend> make_cpu_backend(kernels::Ops& ops) { return std::make_unique<CpuBackend>(ops); }

}  // namespace levada::nn
