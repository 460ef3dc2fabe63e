#include "sched/request_state.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace levada::sched {
namespace {

core::SampleRow constants_of(const core::Request& request) {
  const core::SamplingParams& sampling = request.sampling;
  core::SampleRow row;
  row.temperature = sampling.temperature;
  row.top_p = sampling.top_p;
  row.min_p = sampling.min_p;
  row.top_k = sampling.top_k;
  row.seed = sampling.seed;
  if (request.logprobs) row.top_logprobs = request.logprobs->top;
  return row;
}

}  // namespace

RequestState::RequestState(core::Request the_request, kv::NamespaceRef ns, StopRules rules,
                           const text::Tokenizer* tokenizer)
    : sample_constants(constants_of(the_request)),
      request(std::move(the_request)),
      name_space(std::move(ns)),
      stop_rules(std::move(rules)) {
  if (request.capture) may_commit = request.capture->fill_prefix_cache;
  const std::int32_t prompt = prompt_tokens();
  if (request.logprobs) {
    score_from = std::min(std::max(request.logprobs->prompt_from, 0), prompt - 1);
    score_end = prompt - 1;
  }
  switch (request.hidden) {
    case core::HiddenWish::kNone: break;
    case core::HiddenWish::kLastOfPrompt: hidden_from = prompt - 1; [[fallthrough]];
    case core::HiddenWish::kPrompt: hidden_end = prompt; break;
    case core::HiddenWish::kAll: hidden_end = std::numeric_limits<std::int32_t>::max(); break;
  }
  constexpr std::int32_t kReservedOutput = 4096;
  tokens.reserve(request.prompt.size() +
                 static_cast<std::size_t>(std::min(stop_rules.max_new_tokens, kReservedOutput)));
  tokens.assign(request.prompt.begin(), request.prompt.end());
  if (tokenizer != nullptr) {
    // Stop strings that do not count yet are given to the decoder later, by finish_rule().
    decoder.emplace(*tokenizer, stop_rules.min_new_tokens > 0 ? std::vector<std::string>{} : stop_rules.stop_strings,
                    request.sampling.skip_special_tokens, request.sampling.no_stop_trim);
  }
}

std::int32_t RequestState::first_needed_row() const {
  std::int32_t row = known_tokens() - 1;
  if (score_from < score_end) row = std::min(row, score_from);
  if (hidden_from < hidden_end) row = std::min(row, hidden_from);
  return request.capture ? 0 : row;
}

Status RequestState::verify(std::int32_t page_size_tokens) const {
  const char* broken = nullptr;
  const auto require = [&](bool holds, const char* what) {
    if (!holds && broken == nullptr) broken = what;
  };
  require(computed_tokens <= planned_tokens, "what is computed was planned");
  require(planned_tokens <= known_tokens() + pending_samples, "only known or asked-for tokens are planned");
  require(planned_tokens <= pages.size() * page_size_tokens, "every planned token has its page");
  require(pages.shared_pages() * page_size_tokens <= planned_tokens, "the tree holds planned tokens only");
  require(plans_in_flight >= 0 && plans_in_flight <= 2, "at most two plans are in flight");
  switch (phase) {
    case Phase::kWaiting: require(pages.size() == 0 && plans_in_flight == 0, "a waiting request holds nothing"); break;
    case Phase::kPrefilling:
      require(planned_tokens < input_tokens && pending_samples == 0, "a chunk is missing, no token is asked for");
      break;
    case Phase::kRunning: require(planned_tokens >= input_tokens, "its whole input is planned"); break;
    case Phase::kDraining: require(plans_in_flight > 0, "it waits for a plan"); break;
  }
  if (broken == nullptr) return {};
  return internal_error("request " + std::to_string(core::value(request.id)) + " breaks its invariant: " + broken);
}

}  // namespace levada::sched
