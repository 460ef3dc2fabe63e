// What: tokens chosen on the host from logits that are there: the CPU model's way, and the twin of sampling on a device.
// Owner: none, functions over the caller's plan and logits.
// Thread: any, one at a time per table of kernels.
// Invariant: row i of the logits belongs to plan.samples[i]; what is chosen depends on that row and its SampleRow alone.
#pragma once

#include <vector>

#include "core/step_plan.h"
#include "kernels/ops.h"

namespace levada::model {

// The rows of plan.tokens whose logits are wanted, in the order of plan.samples.
std::vector<std::int32_t> sampled_rows(const core::StepPlan& plan);

// Parameters of plan.samples[i], which borrow the plan's arrays. The row's own input token is not yet in output_history,
// even if append_input_to_history asks for it.
kernels::SampleParams sample_params(const core::StepPlan& plan, std::size_t i, std::int64_t vocabulary);

// logits f32 [plan.samples.size(), V] in host memory, clobbered.
std::vector<core::Token> sample_on_host(const core::StepPlan& plan, const device::TensorView& logits,
                                        kernels::Ops& ops);

}  // namespace levada::model
