// What: CpuOps, Ops on one KernelTable: checks shapes, splits the work over the pool, lends scratch.
// Owner: whoever called make_cpu_ops; borrows the pool, which must outlive it.
// Thread: as ThreadPool.
// Invariant: how the work is split never shows in a result (see Ops). Scratch is per thread and grows to the largest
// need seen.
#pragma once

#include <vector>

#include "kernels/cpu/bf16_table.h"
#include "kernels/cpu/quant_table.h"
#include "kernels/cpu/table.h"
#include "kernels/ops.h"

namespace levada::kernels {

class CpuOps final : public Ops {
 public:
  // Without a `quant` table quantised weights take the plain way; without a `bf16` one bfloat16 weights are widened.
  CpuOps(ThreadPool& pool, const KernelTable& table, const QuantTable* quant, const Bf16Table* bf16)
      : pool_(pool), table_(table), quant_(quant), bf16_(bf16) {}

  std::string name() const override { return bf16_ != nullptr ? bf16_->name : table_.name; }
  std::string quant_name() const override { return quant_ != nullptr ? quant_->name : "ref"; }
  void linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate) override;
  void linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) override;
  void linear_rough(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) override;
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
  void norm(const NormArgs& args, std::int64_t rows);
  void bf16_linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate);
  void quant_linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate, bool rough);

  ThreadPool& pool_;
  const KernelTable& table_;
  const QuantTable* quant_;
  const Bf16Table* bf16_;
  std::vector<RoundedBlock> rounded_;  // the rows of x of the linear under way
  std::vector<Bf16> halved_;           // the same for bfloat16 weights
};

}  // namespace levada::kernels
