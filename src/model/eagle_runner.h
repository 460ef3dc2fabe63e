// What: EagleRunner, an EAGLE-3 draft at work in the steps of a CPU model: the rows' context once their next tokens are known,
// then a chain of draft steps for each slice that asks.
// Owner: the model, until it is begun with another draft.
// Thread: the worker's.
// Invariant: StepDrafter's. The steps of a chain write behind the context; later steps of the target write over them.
// Maths: docs/models.md, "EAGLE-3 drafts".
#pragma once

#include "model/cpu_eagle.h"
#include "model/eagle_rows.h"
#include "model/step_drafter.h"
#include "nn/lm_head.h"

namespace levada::model {

class EagleRunner final : public StepDrafter {
 public:
  // `backend` and `ops` outlive the runner.
  EagleRunner(std::shared_ptr<const CpuEagle> draft, nn::Backend& backend, kernels::Ops& ops);

  const Draft* draft() const override { return draft_.get(); }
  void begin(const core::StepPlan& plan, const kernels::PagedBatch& batch,
             const std::vector<DraftLayerPlanes>& planes) override;
  void after_layer(std::int64_t layer, const at::Tensor& hidden) override;
  std::vector<core::Token> propose(const core::StepPlan& plan, std::span<const core::Token> sampled) override;

 private:
  void linear(const at::Tensor& x, const nn::Projection& w, const at::Tensor& out, bool accumulate);
  // x [rows, 2 hidden] = [RMS(embedding of each id of `inputs`), RMS(state)]
  void join(const nn::StepInputs& inputs, const at::Tensor& state, const at::Tensor& x);
  void write_context(const EagleRows& rows);
  // One step of `chains`, whose states lie in block_.hidden; then the next states do. Gives each chain's guess.
  std::vector<core::Token> run_step(const nn::StepInputs& inputs);
  std::vector<core::Token> guesses(std::int64_t rows);

  const std::shared_ptr<const CpuEagle> draft_;
  nn::Backend& backend_;
  kernels::Ops& ops_;
  nn::LmHead head_;
  nn::GqaWorkspace block_;                            // of chains
  at::Tensor features_, projected_, normed_, state_;  // of the step's rows
  at::Tensor joined_, kv_, chain_x_, fed_;
  at::Tensor k_plane_, v_plane_;
  std::int32_t page_size_ = 0;
};

}  // namespace levada::model
