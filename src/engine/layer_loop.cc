#include "engine/layer_loop.h"

#include <algorithm>

namespace levada::engine {
namespace {

bool wants(const core::StepPlan& plan, const core::PlanCapture& capture, std::int32_t state) {
  if (state == capture::kFinalNorm) return capture.final_norm;
  const auto layers =
      std::span(plan.capture_layers)
          .subspan(static_cast<std::size_t>(capture.layers_first), static_cast<std::size_t>(capture.layers_count));
  return std::find(layers.begin(), layers.end(), state) != layers.end();
}

// The rows of `state` (a layer, or kFinalNorm) for every capture that wants them: from where they were computed if the
// sink can take them there, through the host otherwise.
Status capture_rows(model::Forward& forward, const core::StepPlan& plan, std::int32_t state, capture::RowSink& sink,
                    bool on_device) {
  for (const core::PlanCapture& capture : plan.captures) {
    if (!wants(plan, capture, state)) continue;
    const core::PlanSlice& slice = plan.slices[static_cast<std::size_t>(capture.slice)];
    const bool final_norm = state == capture::kFinalNorm;
    if (on_device) {
      LEVADA_ASSIGN_OR_RETURN(const model::DeviceRows here,
                              forward.device_rows(slice.first_row, slice.range.count, final_norm));
      sink.on_device_rows(capture.id, slice.range, state, here.rows, *here.stream);
    } else {
      LEVADA_ASSIGN_OR_RETURN(const device::TensorView rows,
                              forward.host_rows(slice.first_row, slice.range.count, final_norm));
      sink.on_rows(capture.id, slice.range, state, rows);
    }
  }
  return {};
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

Result<std::unique_ptr<model::SampledTokens>> run_layers(model::Model& model, model::KvPool& pool,
                                                         const core::StepPlan& plan, capture::RowSink* rows) {
  LEVADA_CHECK(rows != nullptr || plan.captures.empty(), "captured rows have somewhere to go");
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<model::Forward> forward, model.begin(plan, pool));
  if (plan.captures.empty()) {
    LEVADA_RETURN_IF_ERROR(forward->all_layers());
  } else {
    const bool on_device = rows->takes_rows_of(model.device());
    for (int layer = 0; layer < model.info().num_layers; ++layer) {
      LEVADA_RETURN_IF_ERROR(forward->layer(layer));
      LEVADA_RETURN_IF_ERROR(capture_rows(*forward, plan, layer, *rows, on_device));
    }
    LEVADA_RETURN_IF_ERROR(capture_rows(*forward, plan, capture::kFinalNorm, *rows, on_device));
  }
  return forward->sample();
}

}  // namespace levada::engine
