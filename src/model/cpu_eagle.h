// What: CpuEagle, an EAGLE-3 draft's weights as the CPU computes with them.
// Owner: whoever loaded it and the model while it runs with it: a shared_ptr, because steps under way outlive a swap.
// Thread: immutable after construction.
// Invariant: precision as CpuDraft's. The embedding is the target's unless the checkpoint has one. Nothing of the file stays
// mapped.
// Maths: docs/models.md, "EAGLE-3 drafts".
#pragma once

#include "model/draft_source.h"
#include "model/model.h"
#include "nn/gqa_layer.h"

namespace levada::model {

class CpuEagle final : public Draft {
 public:
  // Throws what torch throws. `positions`: the target's context.
  CpuEagle(const DraftSource& source, bool rough, nn::Projection target_embedding, std::int64_t positions);

  const DraftConfig& config() const override { return config_; }
  std::int64_t bytes() const override { return bytes_; }
  bool rough() const { return rough_; }
  nn::GqaShape shape() const;
  std::int64_t kv_width() const { return config_.kv_heads * config_.head_dim; }

  nn::Projection embedding, fc, head;
  nn::Projection kv, qkv;  // of [token, state] rows; kv: the k and v rows of qkv
  nn::Projection o, gate_up, down;
  std::vector<at::Tensor> fc_norms;  // of each captured layer, or none
  at::Tensor input_norm, hidden_norm, post_norm, norm, cos_sin;
  std::vector<std::int32_t> ids;  // the target's, of each row of the head

 private:
  const bool rough_;
  const DraftConfig config_;
  std::int64_t bytes_ = 0;
};

}  // namespace levada::model
