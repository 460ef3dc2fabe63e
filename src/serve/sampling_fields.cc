#include "serve/sampling_fields.h"

#include <algorithm>
#include <limits>

#include "serve/prompt.h"
#include "serve/request_wishes.h"

namespace levada::serve {

namespace {

constexpr std::size_t kMaxStopStrings = 64;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxStopIds = 1024;
constexpr float kGreedyBelow = 1e-5f;  // dividing logits by less only overflows; it means greedy
constexpr double kMaxTemperature = 1e4;

void add_stop(FieldReader& fields, simdjson::dom::element element, std::vector<std::string>& stops) {
  if (!element.is_string()) return fields.fail("stop", "must be strings, got " + describe_type(element));
  const std::string_view stop = string_of(element);
  if (stop.empty()) return fields.fail("stop", "a stop string must not be empty");
  if (stop.size() > kMaxStopBytes) {
    return fields.fail("stop", "a stop string is " + std::to_string(stop.size()) + " bytes long; the limit is " +
                                   std::to_string(kMaxStopBytes));
  }
  stops.emplace_back(stop);
}

void read_stop(FieldReader& fields, const ModelContext& context, std::vector<std::string>& stops) {
  const auto element = fields.find("stop");
  if (!element) return;
  if (element->is_array()) {
    for (const simdjson::dom::element item : array_of(*element)) {
      if (stops.size() == kMaxStopStrings) {
        return fields.fail("stop", "holds more than " + std::to_string(kMaxStopStrings) + " strings");
      }
      add_stop(fields, item, stops);
      if (!fields.status().ok()) return;
    }
  } else if (element->is_string()) {
    add_stop(fields, *element, stops);
  } else {
    fields.fail("stop", "must be a string or a list of strings, got " + describe_type(*element));
  }
  if (!stops.empty() && context.tokenizer == nullptr) {
    fields.fail("stop", "this server runs without a tokenizer; use stop_token_ids");
  }
}

void read_stop_ids(FieldReader& fields, const ModelContext& context, std::vector<core::Token>& ids) {
  const auto element = fields.find("stop_token_ids");
  if (!element) return;
  auto list = token_list(context, *element, fields.path("stop_token_ids"), kMaxStopIds);
  if (!list.ok()) return fields.fail(list.status());
  ids = std::move(list).value();
}

std::uint64_t read_seed(FieldReader& fields, const SeedSource& seeds) {
  std::optional<std::int64_t> seed;
  fields.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), &seed);
  return seed ? static_cast<std::uint64_t>(*seed) : seeds();
}

}  // namespace

void read_common_sampling(FieldReader& fields, const ModelContext& context, const SeedSource& seeds,
                          core::SamplingParams& sampling) {
  fields.number("temperature", {0, kMaxTemperature}, &sampling.temperature);
  if (sampling.temperature < kGreedyBelow) sampling.temperature = 0.0f;
  fields.number("top_p", {0, 1, true}, &sampling.top_p);
  fields.number("min_p", {0, 1}, &sampling.min_p);
  fields.number("frequency_penalty", {-2, 2}, &sampling.frequency_penalty);
  fields.number("presence_penalty", {-2, 2}, &sampling.presence_penalty);
  fields.number("repetition_penalty", {0, 2, true}, &sampling.repetition_penalty);
  std::optional<std::int64_t> top_k;
  fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max(), &top_k);
  sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k.value_or(0), 0));
  sampling.seed = read_seed(fields, seeds);
  fields.boolean("ignore_eos", &sampling.ignore_eos);
  fields.boolean("skip_special_tokens", &sampling.skip_special_tokens);
  fields.boolean("no_stop_trim", &sampling.no_stop_trim);
  fields.boolean("spec_full_blocks", &sampling.spec_full_blocks);
  read_stop(fields, context, sampling.stop);
  read_stop_ids(fields, context, sampling.stop_token_ids);
  read_logit_bias(fields, context, sampling.logit_bias);
}

Status resolve_limit(const ModelContext& context, const OutputLimit& limit, std::size_t prompt_tokens,
                     std::optional<std::int64_t> default_tokens, core::SamplingParams& sampling) {
  const std::int64_t rest = context.context_length_tokens - static_cast<std::int64_t>(prompt_tokens);
  if (limit.max_tokens.value_or(0) > rest) {
    return invalid_argument("prompt (" + std::to_string(prompt_tokens) + " tokens) and " + limit.field + " (" +
                                std::to_string(*limit.max_tokens) + ") together exceed the model's context length (" +
                                std::to_string(context.context_length_tokens) + " tokens); at most " +
                                std::to_string(rest) + " can be generated",
                            limit.field);
  }
  const std::int64_t max_tokens = limit.max_tokens.value_or(std::min(default_tokens.value_or(rest), rest));
  const std::int64_t min_tokens = limit.min_tokens.value_or(0);
  if (min_tokens > max_tokens) {
    return invalid_argument("is " + std::to_string(min_tokens) + ", but at most " + std::to_string(max_tokens) +
                                " tokens are allowed by " + limit.field + (limit.max_tokens ? "" : "'s default"),
                            limit.min_field);
  }
  sampling.max_new_tokens = static_cast<std::int32_t>(max_tokens);
  sampling.min_new_tokens = static_cast<std::int32_t>(min_tokens);
  return {};
}

}  // namespace levada::serve
