// What: CpuDraft, a DFlash draft's weights as the CPU computes with them.
// Owner: whoever loaded it and the model while it runs with it: a shared_ptr, because steps under way outlive a swap.
// Thread: immutable after construction.
// Invariant: matrices are float32 where the file's and the target's are; else the draft is rough: they are Q8_0 (bfloat16
// where a row is no multiple of 32) and activations are rounded to a byte. Vectors are float32. Nothing of the file stays
// mapped.
// Maths: docs/models.md, "DFlash drafts".
#pragma once

#include "model/draft_source.h"
#include "model/model.h"
#include "nn/gqa_layer.h"

namespace levada::model {

class CpuDraft final : public Draft {
 public:
  struct Layer {
    nn::GqaLayer block;                    // of the rows of a block
    nn::Projection kv;                     // of context rows: the k and v rows of block.qkv
    at::Tensor qkv_bias, kv_bias, o_bias;  // undefined without attention_bias
    bool slides = false;
  };

  // Throws what torch throws. `head`: the target's, as Q8_0 for a rough draft. `positions`: the target's context.
  CpuDraft(const DraftSource& source, bool rough, nn::Projection head, std::int64_t positions);

  const DraftConfig& config() const override { return config_; }
  std::int64_t bytes() const override { return bytes_; }
  bool rough() const { return rough_; }
  nn::GqaShape shape() const;
  std::int64_t kv_width() const { return config_.kv_heads * config_.head_dim; }

  nn::Projection fc, head;
  at::Tensor hidden_norm, norm, cos_sin;
  std::vector<Layer> layers;

 private:
  const bool rough_;
  const DraftConfig config_;
  std::int64_t bytes_ = 0;
};

}  // namespace levada::model
