#include "engine/wishes.h"

#include <algorithm>
#include <cmath>

#include "kernels/sampling.h"

namespace levada::engine {
namespace {

// Rows of logits in memory at a time.
constexpr std::size_t kRowsAtOnce = 64;

float finite_logprob(float logit, double log_mass) {
  const auto logprob = static_cast<float>(logit - log_mass);
  return logprob >= core::kLeastLogprob ? std::min(logprob, 0.0f) : core::kLeastLogprob;  // NaN, too
}

core::TokenLogprob logprob_of(std::span<const float> logits, core::Token token, std::int32_t top) {
  const double log_mass = kernels::log_mass(logits);
  const auto of = [&](core::Token id) { return finite_logprob(logits[static_cast<std::size_t>(id)], log_mass); };
  core::TokenLogprob logprob{token, of(token), {}};
  for (const std::int32_t id : kernels::largest_logits(logits, static_cast<std::size_t>(top))) {
    logprob.top.push_back({id, of(id)});
  }
  return logprob;
}

// All that is asked for, scored rows first.
std::vector<core::ScoreRow> questions_of(const core::StepPlan& plan, std::span<const core::Token> sampled) {
  std::vector<core::ScoreRow> questions = plan.scores;
  for (std::size_t i = 0; i < plan.samples.size(); ++i) {
    if (plan.samples[i].top_logprobs < 0) continue;
    questions.push_back({plan.samples[i].row, sampled[i], plan.samples[i].top_logprobs});
  }
  return questions;
}

Result<std::vector<core::TokenLogprob>> answer(model::Forward& forward, std::span<const core::ScoreRow> questions) {
  std::vector<core::TokenLogprob> answers;
  std::vector<std::int32_t> rows;
  while (answers.size() < questions.size()) {
    const auto part = questions.subspan(answers.size(), std::min(kRowsAtOnce, questions.size() - answers.size()));
    rows.clear();
    for (const core::ScoreRow& question : part) {
      if (rows.empty() || rows.back() != question.row) rows.push_back(question.row);
    }
    LEVADA_ASSIGN_OR_RETURN(const device::TensorView logits, forward.logits(rows));
    std::size_t at = 0;
    for (const core::ScoreRow& question : part) {
      if (rows[at] != question.row) ++at;
      const auto* values = logits.as<float>() + static_cast<std::int64_t>(at) * logits.strides[0];
      const std::span row(values, static_cast<std::size_t>(logits.shape[1]));
      answers.push_back(logprob_of(row, question.next, question.top_logprobs));
    }
  }
  return answers;
}

}  // namespace

bool has_wishes(const core::StepPlan& plan) {
  return !plan.scores.empty() || !plan.hidden.empty() ||
         std::any_of(plan.samples.begin(), plan.samples.end(), [](const auto& row) { return row.top_logprobs >= 0; });
}

Result<std::unique_ptr<model::SampledTokens>> sample_with_wishes(model::Forward& forward, const core::StepPlan& plan,
                                                                 core::StepResult& result) {
  for (const core::HiddenRows& wanted : plan.hidden) {
    LEVADA_ASSIGN_OR_RETURN(const device::TensorView rows, forward.host_rows(wanted.first_row, wanted.count, true));
    const auto* values = rows.as<float>();
    result.hidden.emplace_back(values, values + rows.elements());
  }
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<model::SampledTokens> tokens, forward.sample());
  LEVADA_ASSIGN_OR_RETURN(model::StepTokens step, tokens->wait());
  const std::vector<core::ScoreRow> questions = questions_of(plan, step.sampled);
  LEVADA_ASSIGN_OR_RETURN(std::vector<core::TokenLogprob> answers, answer(forward, questions));
  const auto scored = answers.begin() + static_cast<std::ptrdiff_t>(plan.scores.size());
  result.scored.assign(answers.begin(), scored);
  if (scored != answers.end()) {
    auto next = scored;
    for (const core::SampleRow& row : plan.samples) {
      result.sampled_logprobs.push_back(row.top_logprobs >= 0 ? std::move(*next++) : core::TokenLogprob{});
    }
  }
  return model::ready_tokens(std::move(step));
}

}  // namespace levada::engine
