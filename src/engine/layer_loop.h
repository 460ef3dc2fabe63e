// What: the layer loop, one StepPlan through the model from token ids to sampled tokens.
// Owner: none, functions over what the worker owns.
// Thread: the worker's.
// Invariant: whatever happens between two layers of a step (loads to wait for, rows to capture, pages to send) happens
// in run_layers() and nowhere else.
#pragma once

#include <span>
#include <vector>

#include "capture/row_sink.h"
#include "core/step_plan.h"
#include "model/model.h"

namespace levada::engine {

// Writes the tokens that the step before sampled where the plan says so. kInternal when that step has none (it failed).
Status fill_future_tokens(core::StepPlan& plan, std::span<const core::Token> previous_samples);

// One token per plan.samples; none when the plan asks for none. The rows that plan.captures names go to `rows`, which
// may be null only if there are none. `draft`: the one that plan.draft names. What else the plan wants to know comes into `result`. Returns when the step is under way, not when it is done, if the model runs ahead.
Result<std::unique_ptr<model::SampledTokens>> run_layers(model::Model& model, model::KvPool& pool,
                                                         const std::shared_ptr<const model::Draft>& draft,
                                                         const core::StepPlan& plan, capture::RowSink* rows,
                                                         core::StepResult& result);

}  // namespace levada::engine
