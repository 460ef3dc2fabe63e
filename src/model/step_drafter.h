// What: StepDrafter, a draft at work in the steps of a CPU model: it hears of the target's layers, then of its tokens.
// Owner: the model, until it is begun with another draft.
// Thread: the worker's.
// Invariant: borrows nothing of the target's workspace, so that what a step's hidden() and logits() say stays as it was; a
// row's keys, values and guesses depend on its own request alone.
// Kinds: draft_runner.h (DFlash), eagle_runner.h (EAGLE-3).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "nn/backend.h"

namespace levada::model {

// The draft planes of a layer, [pages, page_size, elements], of which a draft uses the first numbers of each token.
struct DraftLayerPlanes {
  at::Tensor k, v;
};

class StepDrafter {
 public:
  virtual ~StepDrafter() = default;
  virtual const Draft* draft() const = 0;
  // A step begins: its rows, which `plan` and `batch` describe until it ends, and where their context goes.
  virtual void begin(const core::StepPlan& plan, const kernels::PagedBatch& batch,
                     const std::vector<DraftLayerPlanes>& planes) = 0;
  // The target's layer `layer` gave `hidden`.
  virtual void after_layer(std::int64_t layer, const at::Tensor& hidden) = 0;
  // Once the plan's samples are known (there may be none): what StepResult::proposed says. What the rows' context owes to
  // the token behind them is written here.
  virtual std::vector<core::Token> propose(const core::StepPlan& plan, std::span<const core::Token> sampled) = 0;
};

// x [rows, width] at the columns of `to` from `first` on. (libtorch would wake its own threads for a long chunk.)
void copy_draft_columns(const at::Tensor& x, const at::Tensor& to, std::int64_t first);

}  // namespace levada::model
