// What: RefOps, the plain twin of every kernel: loops over the formulas, sums in double, one thread.
// Owner: whoever called make_cpu_ops; borrows the pool.
// Thread: as Ops.
// Invariant: written to be read beside the formulas, not to be fast; what the tuned tables are tested against. It
// serves CPUs without AVX2 as well.
#pragma once

#include "kernels/ops.h"

namespace levada::kernels {

class RefOps final : public Ops {
 public:
  explicit RefOps(ThreadPool& pool) : pool_(pool) {}

  std::string name() const override { return "ref"; }
  std::string quant_name() const override { return "ref"; }
  void linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate) override;
  void linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) override;
  void linear_rough(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) override {
    linear(x, w, out, accumulate);
  }
  void rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out) override;
  void rms_norm_heads(const TensorView& x, const TensorView& w, float eps) override;
  void rope(const TensorView& x, const TensorView& cos_sin, std::span<const std::int32_t> positions) override;
  void silu_mul(const TensorView& gate_up, const TensorView& out) override;
  using Ops::embed;
  void embed(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out) override;
  void write_kv(const TensorView& k, const TensorView& v, const PagedBatch& batch, const TensorView& k_plane,
                const TensorView& v_plane) override;
  void paged_attention(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                       const TensorView& v_plane, float scale, const TensorView& out) override;
  std::int32_t sample(const TensorView& logits, const SampleParams& params) override;

 private:
  ThreadPool& pool_;
};

}  // namespace levada::kernels
