// What: CheckpointSource, a checkpoint as the CUDA decoder reads it: rows in model order, converted on the host.
// Owner: load_model(), until the decoder has its weights; borrows checkpoint and threads.
// Thread: one; rows are split over the pool.
// Invariant: file pages that were read are given back, so that loading needs no memory of the weights' size.
#pragma once

#include "kernels/quant.h"
#include "kernels/thread_pool.h"
#include "model/cuda/factory.h"

namespace levada::model {

class CheckpointSource final : public DecoderSource {
 public:
  CheckpointSource(const Checkpoint& checkpoint, core::ModelInfo info, kernels::ThreadPool& pool)
      : checkpoint_(checkpoint), info_(std::move(info)), pool_(pool) {}

  const ModelConfig& config() const override { return checkpoint_.config(); }
  const core::ModelInfo& info() const override { return info_; }
  void read(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype, void* out) override;
  bool is_f8(Weight weight, std::int64_t layer) const override;
  void read_f8(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, void* out) override;
  std::vector<float> scales(Weight weight, std::int64_t layer) override;
  std::vector<LayerKvScales> kv_scales() const override { return checkpoint_.kv_scales(); }
  void fill_cos_sin(float* out) override;

 private:
  const Checkpoint& checkpoint_;
  const core::ModelInfo info_;
  kernels::ThreadPool& pool_;
};

// Floats as `dtype`: float32, bfloat16 (nearest even) or float16.
void narrow(std::span<const float> from, DType dtype, void* to);

// Rows [first, first + count) of a weight, as DecoderSource::read() gives them: the one way weights are converted.
void read_rows(const Checkpoint& checkpoint, Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count,
               DType dtype, kernels::ThreadPool& pool, void* out);

// All rows of a quantised weight, in model order and bit for bit, to rows first_row and on of `out`, which is of its form.
void copy_stored_rows(const Checkpoint& checkpoint, Weight weight, std::int64_t layer, std::int64_t first_row,
                      kernels::ThreadPool& pool, kernels::QuantMatrix& out);

}  // namespace levada::model
