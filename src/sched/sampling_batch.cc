#include "sched/sampling_batch.h"

namespace levada::sched {

core::SampleRow SamplingBatch::constants_of(const RequestState& state) {
  const core::SamplingParams& sampling = state.request.sampling;
  core::SampleRow row;
  row.temperature = sampling.temperature;
  row.top_p = sampling.top_p;
  row.min_p = sampling.min_p;
  row.top_k = sampling.top_k;
  row.seed = sampling.seed;
  if (state.request.logprobs) row.top_logprobs = state.request.logprobs->top;
  return row;
}

void SamplingBatch::grow() {
  rows_.emplace_back();
  holders_.emplace_back();
}

}  // namespace levada::sched
