// What: what a plan wants to know beside its tokens: log probabilities and hidden states.
// Owner: none, functions over a step under way.
// Thread: the worker's.
// Invariant: log probabilities are of the model's own logits, computed once more after the sampler has had its way with
// them, so a step without wishes pays nothing and every device gives them. A step with wishes is waited for.
#pragma once

#include "core/step_plan.h"
#include "model/model.h"

namespace levada::engine {

bool has_wishes(const core::StepPlan& plan);

// After the last layer of `plan`: samples, and fills result's sampled_logprobs, scored and hidden.
Result<std::unique_ptr<model::SampledTokens>> sample_with_wishes(model::Forward& forward, const core::StepPlan& plan,
                                                                 core::StepResult& result);

}  // namespace levada::engine
