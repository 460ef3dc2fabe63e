#include "serve/request_wishes.h"

#include <algorithm>
#include <charconv>

namespace levada::serve {

namespace {

constexpr std::int64_t kMaxChatTop = 20, kMaxCompletionTop = 5;
constexpr std::size_t kMaxBiases = 1024;
constexpr double kMaxBias = 100;
constexpr std::int64_t kMaxWishedNumbers = 8 << 20;

}  // namespace

std::size_t read_choices(FieldReader& fields) {
  std::optional<std::int64_t> choices;
  fields.integer("n", 1, kMaxChoices, &choices);
  return static_cast<std::size_t>(choices.value_or(1));
}

std::optional<core::LogprobRequest> read_chat_logprobs(FieldReader& fields) {
  bool wanted = false;
  std::optional<std::int64_t> top;
  fields.boolean("logprobs", &wanted);
  fields.integer("top_logprobs", 0, kMaxChatTop, &top);
  if (top.value_or(0) > 0 && !wanted) fields.fail("top_logprobs", "needs logprobs: true");
  if (!wanted) return std::nullopt;
  core::LogprobRequest logprobs;
  logprobs.top = static_cast<std::int32_t>(top.value_or(0));
  return logprobs;
}

std::optional<core::LogprobRequest> read_completion_logprobs(FieldReader& fields, bool echo) {
  std::optional<std::int64_t> top;
  fields.integer("logprobs", 0, kMaxCompletionTop, &top);
  if (!top) return std::nullopt;
  core::LogprobRequest logprobs;
  logprobs.top = static_cast<std::int32_t>(*top);
  if (echo) logprobs.prompt_from = 0;
  return logprobs;
}

void read_logit_bias(FieldReader& fields, const ModelContext& model, std::vector<core::LogitBias>& biases) {
  const auto given = fields.find("logit_bias");
  if (!given) return;
  if (!given->is_object()) return fields.fail("logit_bias", "must be an object, got " + describe_type(*given));
  for (const auto [key, value] : object_of(*given)) {
    core::LogitBias bias;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), bias.token);
    if (error != std::errc() || end != key.data() + key.size() || bias.token < 0 ||
        bias.token >= model.info.vocab_size) {
      return fields.fail("logit_bias", "'" + std::string(key.substr(0, 32)) +
                                           "' is no token id of the vocabulary [0, " +
                                           std::to_string(model.info.vocab_size) + ")");
    }
    double number = 0;
    if (value.get_double().get(number) != simdjson::SUCCESS || !(number >= -kMaxBias && number <= kMaxBias)) {
      return fields.fail("logit_bias",
                         "the bias of token " + std::to_string(bias.token) + " must be a number in [-100, 100]");
    }
    bias.bias = static_cast<float>(number);
    const bool twice =
        std::any_of(biases.begin(), biases.end(), [&](auto& other) { return other.token == bias.token; });
    if (twice) return fields.fail("logit_bias", "holds token " + std::to_string(bias.token) + " twice");
    if (biases.size() == kMaxBiases) {
      return fields.fail("logit_bias", "holds more than " + std::to_string(kMaxBiases) + " tokens");
    }
    biases.push_back(bias);
  }
}

Status check_wishes(const CallSpec& call) {
  std::int64_t numbers = 0;
  for (const Member& member : call.members) {
    const core::Request& request = member.request;
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    const std::int64_t output = request.sampling.max_new_tokens;
    if (request.logprobs) {
      const std::int64_t scored = std::max<std::int64_t>(prompt - request.logprobs->prompt_from, 0);
      numbers += (scored + output) * (request.logprobs->top + 1);
    }
    if (request.hidden == core::HiddenWish::kAll) numbers += (prompt + output) * call.hidden_size;
  }
  if (numbers <= kMaxWishedNumbers) return {};
  return payload_too_large("asks for up to " + std::to_string(numbers) +
                           " log probabilities and elements of hidden states; the limit is " +
                           std::to_string(kMaxWishedNumbers));
}

Status add_members(const ParseContext& context, core::Request request, const std::string& rid, CallSpec& call) {
  if (static_cast<std::int64_t>(call.members.size() + call.choices) > context.model.max_batch_prompts) {
    return invalid_argument("prompts times n may be at most " + std::to_string(context.model.max_batch_prompts), "n");
  }
  const bool own_names = call.dialect == Dialect::kGenerate && call.choices > 1;
  for (std::size_t choice = 0; choice < call.choices; ++choice) {
    Member member;
    member.rid = own_names ? rid + "_" + std::to_string(choice) : rid;
    if (own_names) member.group = rid;
    member.request = choice + 1 < call.choices ? request : std::move(request);
    member.request.sampling.seed += choice;
    call.members.push_back(std::move(member));
  }
  return {};
}

}  // namespace levada::serve
