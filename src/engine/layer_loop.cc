#include "engine/layer_loop.h"

#include <algorithm>
#include <limits>

#include "engine/wishes.h"

namespace levada::engine {
namespace {

bool wants(const core::StepPlan& plan, const core::PlanCapture& capture, std::int32_t state) {
  if (state == capture::kFinalNorm) return capture.final_norm;
  const auto layers =
      std::span(plan.capture_layers)
          .subspan(static_cast<std::size_t>(capture.layers_first), static_cast<std::size_t>(capture.layers_count));
  return std::find(layers.begin(), layers.end(), state) != layers.end();
}

device::TensorView rows_of(device::TensorView all, std::int32_t first, std::int32_t count) {
  all.data = all.as<std::byte>() + static_cast<std::size_t>(first * all.strides[0]) * bytes_of(all.dtype);
  all.shape[0] = count;
  return all;
}

// The rows of `state` (a layer, or kFinalNorm) for every capture that wants them, from where they were computed: all at
// once, so that a step of many captures costs few launches.
Status capture_device_rows(model::Forward& forward, const core::StepPlan& plan, std::int32_t state,
                           capture::RowSink& sink) {
  std::vector<capture::CapturedRows> wanted;
  std::vector<std::int32_t> first_rows;
  std::int32_t first = std::numeric_limits<std::int32_t>::max(), end = 0;
  for (const core::PlanCapture& capture : plan.captures) {
    if (!wants(plan, capture, state)) continue;
    const core::PlanSlice& slice = plan.slices[static_cast<std::size_t>(capture.slice)];
    wanted.push_back({capture.id, slice.range, {}});
    first_rows.push_back(slice.first_row);
    first = std::min(first, slice.first_row);
    end = std::max(end, slice.first_row + slice.range.count);
  }
  if (wanted.empty()) return {};
  LEVADA_ASSIGN_OR_RETURN(const model::DeviceRows all,
                          forward.device_rows(first, end - first, state == capture::kFinalNorm));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].rows = rows_of(all.rows, first_rows[i] - first, wanted[i].range.count);
  }
  sink.on_device_rows(state, wanted, *all.stream);
  return {};
}

// The same through the host.
Status capture_host_rows(model::Forward& forward, const core::StepPlan& plan, std::int32_t state,
                         capture::RowSink& sink) {
  for (const core::PlanCapture& capture : plan.captures) {
    if (!wants(plan, capture, state)) continue;
    const core::PlanSlice& slice = plan.slices[static_cast<std::size_t>(capture.slice)];
    LEVADA_ASSIGN_OR_RETURN(const device::TensorView rows,
                            forward.host_rows(slice.first_row, slice.range.count, state == capture::kFinalNorm));
    sink.on_rows(capture.id, slice.range, state, rows);
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
                                                         const std::shared_ptr<const model::Draft>& draft,
                                                         const core::StepPlan& plan, capture::RowSink* rows,
                                                         core::StepResult& result) {
  LEVADA_CHECK(rows != nullptr || plan.captures.empty(), "captured rows have somewhere to go");
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<model::Forward> forward, model.begin(plan, pool, draft));
  if (plan.captures.empty()) {
    LEVADA_RETURN_IF_ERROR(forward->all_layers());
  } else {
    const auto capture_rows = rows->takes_rows_of(model.device()) ? capture_device_rows : capture_host_rows;
    for (int layer = 0; layer < model.info().num_layers; ++layer) {
      LEVADA_RETURN_IF_ERROR(forward->layer(layer));
      LEVADA_RETURN_IF_ERROR(capture_rows(*forward, plan, layer, *rows));
    }
    LEVADA_RETURN_IF_ERROR(capture_rows(*forward, plan, capture::kFinalNorm, *rows));
  }
  return has_wishes(plan) ? sample_with_wishes(*forward, plan, result) : forward->sample();
}

}  // namespace levada::engine
