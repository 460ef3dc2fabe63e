#include "model/host_sampling.h"

#include "model/model.h"

namespace levada::model {
namespace {

class ReadyTokens final : public SampledTokens {
 public:
  explicit ReadyTokens(StepTokens tokens) : tokens_(std::move(tokens)) {}
  Result<StepTokens> wait() override { return std::move(tokens_); }

 private:
  StepTokens tokens_;
};

}  // namespace

std::unique_ptr<SampledTokens> ready_tokens(StepTokens tokens) {
  return std::make_unique<ReadyTokens>(std::move(tokens));
}

std::vector<std::int32_t> sampled_rows(const core::StepPlan& plan) {
  std::vector<std::int32_t> rows;
  for (const core::SampleRow& sample : plan.samples) rows.push_back(sample.row);
  return rows;
}

kernels::SampleParams sample_params(const core::StepPlan& plan, std::size_t i, std::int64_t vocabulary) {
  const core::SampleRow& row = plan.samples[i];
  const auto part = [](const auto& all, std::int32_t first, std::int64_t count) {
    return std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  };
  const auto history = part(plan.history, row.history_first, row.history_tokens);
  kernels::SampleParams params;
  params.temperature = row.temperature;
  params.top_p = row.top_p;
  params.min_p = row.min_p;
  params.top_k = row.top_k;
  params.frequency_penalty = row.frequency_penalty;
  params.presence_penalty = row.presence_penalty;
  params.repetition_penalty = row.repetition_penalty;
  params.prompt_history = history.first(static_cast<std::size_t>(row.history_prompt_tokens));
  params.output_history = history.subspan(static_cast<std::size_t>(row.history_prompt_tokens));
  params.banned = part(plan.banned, row.banned_first, row.banned_count);
  params.bias_ids = part(plan.bias_ids, row.bias_first, row.bias_count);
  params.bias_values = part(plan.bias_values, row.bias_first, row.bias_count);
  if (row.mask_first >= 0) params.mask = part(plan.masks, row.mask_first, core::mask_words(vocabulary));
  params.seed = row.seed;
  params.position = row.position;
  return params;
}

std::vector<core::Token> sample_on_host(const core::StepPlan& plan, const device::TensorView& logits,
                                        kernels::Ops& ops) {
  LEVADA_CHECK(logits.rank == 2 && logits.shape[0] == static_cast<std::int64_t>(plan.samples.size()),
               "one row of logits per sample");
  std::vector<core::Token> tokens;
  std::vector<std::int32_t> output;
  for (std::size_t i = 0; i < plan.samples.size(); ++i) {
    kernels::SampleParams params = sample_params(plan, i, logits.shape[1]);
    const core::SampleRow& row = plan.samples[i];
    if (row.append_input_to_history) {
      output.assign(params.output_history.begin(), params.output_history.end());
      output.push_back(plan.tokens[static_cast<std::size_t>(row.row)]);
      params.output_history = output;
    }
    auto* values = logits.as<float>() + static_cast<std::int64_t>(i) * logits.strides[0];
    tokens.push_back(ops.sample(device::TensorView::of(values, DType::kF32, {logits.shape[1]}), params));
  }
  return tokens;
}

}  // namespace levada::model
