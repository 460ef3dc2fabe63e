#include "engine/layer_loop.h"

namespace levada::engine {
namespace {

std::vector<std::int32_t> sampled_rows(const core::StepPlan& plan) {
  std::vector<std::int32_t> rows;
  for (const core::SampleRow& sample : plan.samples) rows.push_back(sample.row);
  return rows;
}

}  // namespace

Status fill_future_tokens(core::StepPlan& plan, std::span<const core::Token> previous_samples) {
  for (const core::FutureToken& future : plan.future_tokens) {
    const auto sample = static_cast<std::size_t>(future.previous_sample);
    if (future.previous_sample < 0 || sample >= previous_samples.size()) {
      return internal_error("the step before, whose token this step continues, gave none");
    }
    if (future.row < 0 || static_cast<std::size_t>(future.row) >= plan.tokens.size()) {
      return internal_error("step plan: a future token's row is out of range");
    }
    plan.tokens[static_cast<std::size_t>(future.row)] = previous_samples[sample];
  }
  return {};
}

Result<std::vector<core::Token>> run_layers(model::Model& model, model::KvPool& pool, const core::StepPlan& plan) {
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<model::Forward> forward, model.begin(plan, pool));
  for (int layer = 0; layer < model.info().num_layers; ++layer) {
    LEVADA_RETURN_IF_ERROR(forward->layer(layer));
  }
  if (plan.samples.empty()) return std::vector<core::Token>();
  LEVADA_ASSIGN_OR_RETURN(const device::TensorView logits, forward->logits(sampled_rows(plan)));
  return model.sample(plan, logits);
}

}  // namespace levada::engine
