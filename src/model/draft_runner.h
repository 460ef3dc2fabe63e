// What: DraftRunner, a DFlash draft at work in the steps of a CPU model: context rows while the layers run, blocks afterwards.
// Owner: the model, until it is begun with another draft.
// Thread: the worker's.
// Invariant: borrows nothing of the target's workspace, so that what a step's hidden() and logits() say stays as it was; a
// row's keys, values and guesses depend on its own request alone.
// Maths: docs/models.md, "DFlash drafts".
#pragma once

#include "model/cpu_draft.h"
#include "model/draft_blocks.h"
#include "model/step_drafter.h"
#include "nn/lm_head.h"

namespace levada::model {

class DraftRunner final : public StepDrafter {
 public:
  // `embedding`: the target's. `backend` and `ops` outlive the runner.
  DraftRunner(std::shared_ptr<const CpuDraft> draft, nn::Backend& backend, kernels::Ops& ops,
              const nn::Projection& embedding);

  const Draft* draft() const override { return draft_.get(); }
  void begin(const core::StepPlan& plan, const kernels::PagedBatch& batch,
             const std::vector<DraftLayerPlanes>& planes) override;
  // With the last layer that the draft reads the rows' context is written.
  void after_layer(std::int64_t layer, const at::Tensor& hidden) override;
  std::vector<core::Token> propose(const core::StepPlan& plan, std::span<const core::Token> sampled) override;

 private:
  void linear(const at::Tensor& x, const nn::Projection& w, const at::Tensor& out, bool accumulate);
  void write_context();
  void run_layer(std::size_t layer, const nn::StepInputs& writes, const nn::StepInputs& reads);
  std::vector<core::Token> guesses(std::span<const std::int32_t> rows);

  const std::shared_ptr<const CpuDraft> draft_;
  nn::Backend& backend_;
  kernels::Ops& ops_;
  const nn::Projection embedding_;
  nn::LmHead head_;
  nn::GqaWorkspace block_;
  at::Tensor memory_, features_, projected_, context_, kv_;  // of context rows; the latter four lie in memory_
  std::vector<DraftLayerPlanes> planes_;                     // as the kernels take them
  std::unique_ptr<nn::StepInputs> inputs_;
  std::int64_t last_layer_ = 0;
  std::int32_t page_size_ = 0;
};

}  // namespace levada::model
