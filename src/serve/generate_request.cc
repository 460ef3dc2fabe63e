// The body of /generate, SGLang's native form: text or input_ids, one or a batch, sampling_params for all or for each.
#include <algorithm>
#include <limits>
#include <set>
#include <span>

#include "serve/capture_request.h"
#include "serve/guide_fields.h"
#include "serve/prompt.h"
#include "serve/request_envelope.h"
#include "serve/request_wishes.h"
#include "serve/unserved_fields.h"

namespace levada::serve {

namespace {

constexpr std::int64_t kSglangMaxTokens = 128;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

Result<Prompts> read_prompts(const ModelContext& model, const FieldReader& fields) {
  const auto text = fields.find("text");
  const auto ids = fields.find("input_ids");
  if (text && ids) return invalid_argument("give either text or input_ids, not both", "input_ids");
  if (!text && !ids) return invalid_argument("is missing; give text or input_ids", "text");
  const std::string field = text ? "text" : "input_ids";
  LEVADA_ASSIGN_OR_RETURN(Prompts prompts, prompts_from(model, text ? *text : *ids, field));
  return prompts;
}

// One prompt's sampling_params; `value` absent means all defaults.
Result<core::SamplingParams> read_sampling(const ParseContext& context, std::optional<simdjson::dom::element> value,
                                           const std::string& field, std::size_t prompt_tokens) {
  core::SamplingParams sampling;
  OutputLimit limit{.field = field + ".max_new_tokens", .min_field = field + ".min_new_tokens"};
  if (!value || value->is_null()) {
    sampling.seed = context.seeds();
  } else if (!value->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*value), field);
  } else {
    FieldReader fields(object_of(*value), field + ".");
    refuse_unserved(fields, Body::kSamplingParams);
    read_common_sampling(fields, context.model, context.seeds, sampling);
    std::optional<std::int64_t> seed;
    fields.integer("sampling_seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
                   &seed);
    if (seed) sampling.seed = static_cast<std::uint64_t>(*seed);
    fields.integer("max_new_tokens", 0, kMaxInt32, &limit.max_tokens);
    fields.integer("min_new_tokens", 0, kMaxInt32, &limit.min_tokens);
    LEVADA_RETURN_IF_ERROR(fields.status());
  }
  LEVADA_RETURN_IF_ERROR(resolve_limit(context.model, limit, prompt_tokens, kSglangMaxTokens, sampling));
  return sampling;
}

// The form of one prompt's answer, out of its sampling_params.
Result<std::optional<GuideWish>> read_form(std::optional<simdjson::dom::element> value, const std::string& field) {
  if (!value || value->is_null()) return std::optional<GuideWish>();
  return read_native_guide(FieldReader(object_of(*value), field + "."));
}

// The member'th entry of a field that is one value for all or a list with one value each.
Result<std::optional<simdjson::dom::element>> entry_for(std::optional<simdjson::dom::element> value,
                                                        const std::string& field, std::size_t member,
                                                        std::size_t members) {
  if (!value || !value->is_array()) return value;
  const simdjson::dom::array list = array_of(*value);
  if (static_cast<std::size_t>(std::distance(list.begin(), list.end())) != members) {
    return invalid_argument("must have one entry for each of the " + std::to_string(members) + " prompts", field);
  }
  return std::optional(list.at(member).value_unsafe());
}

// The member's key, where extra_key is a list with one for each prompt.
Status read_own_key(const FieldReader& fields, std::size_t member, std::size_t members, Envelope& envelope) {
  const auto keys = fields.find("extra_key");
  if (!keys || !keys->is_array()) return {};
  LEVADA_ASSIGN_OR_RETURN(const auto key, entry_for(keys, "extra_key", member, members));
  envelope.cache_namespace.extra_key.reset();
  if (key->is_null()) return {};
  if (!key->is_string() || string_of(*key).size() > kMaxKeyBytes) {
    return invalid_argument("must be strings of at most " + std::to_string(kMaxKeyBytes) + " bytes",
                            "extra_key[" + std::to_string(member) + "]");
  }
  envelope.cache_namespace.extra_key = std::string(string_of(*key));
  return {};
}

// return_logprob, logprob_start_len, top_logprobs_num and return_hidden_states, each for all or one for each prompt.
class PromptWishes {
 public:
  static Result<PromptWishes> read(const FieldReader& fields, std::size_t member, std::size_t members) {
    PromptWishes wishes;
    for (const char* name : {"return_logprob", "logprob_start_len", "top_logprobs_num", "return_hidden_states"}) {
      LEVADA_ASSIGN_OR_RETURN(const auto value, entry_for(fields.find(name), name, member, members));
      if (value && !value->is_null()) wishes.values_.emplace_back(name, *value);
    }
    return wishes;
  }

  Status apply(const ModelContext& model, core::Request& request) const {
    LEVADA_ASSIGN_OR_RETURN(const bool wanted, boolean("return_logprob"));
    LEVADA_ASSIGN_OR_RETURN(const bool hidden, boolean("return_hidden_states"));
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    LEVADA_ASSIGN_OR_RETURN(std::int64_t start, integer("logprob_start_len", -1, -1, prompt_tokens));
    LEVADA_ASSIGN_OR_RETURN(const std::int64_t top, integer("top_logprobs_num", 0, 0, core::kMaxTopLogprobs));
    if (hidden && !model.return_hidden_states) {
      return invalid_argument("this server was started without --enable-return-hidden-states", "return_hidden_states");
    }
    if (hidden) request.hidden = core::HiddenWish::kAll;
    if (!wanted) return {};
    request.logprobs.emplace();
    request.logprobs->top = static_cast<std::int32_t>(top);
    request.logprobs->prompt_from = static_cast<std::int32_t>(start < 0 ? prompt_tokens - 1 : start);
    return {};
  }

 private:
  std::optional<simdjson::dom::element> find(std::string_view name) const {
    for (const auto& [key, value] : values_) {
      if (key == name) return value;
    }
    return std::nullopt;
  }
  Result<bool> boolean(const std::string& name) const {
    const auto value = find(name);
    if (!value) return false;
    if (!value->is_bool()) return invalid_argument("must be true or false, got " + describe_type(*value), name);
    return value->get_bool().value_unsafe();
  }
  Result<std::int64_t> integer(const std::string& name, std::int64_t fallback, std::int64_t min,
                               std::int64_t max) const {
    const auto value = find(name);
    if (!value) return fallback;
    const auto number = integer_of(*value);
    if (!number || *number < min || *number > max) {
      return invalid_argument("must be an integer in [" + std::to_string(min) + ", " + std::to_string(max) + "]", name);
    }
    return *number;
  }

  std::vector<std::pair<std::string_view, simdjson::dom::element>> values_;
};

// One n for all prompts: the answer's order depends on it.
Result<std::size_t> read_all_choices(std::optional<simdjson::dom::element> params) {
  const auto of = [](simdjson::dom::element value) -> Result<std::size_t> {
    if (!value.is_object()) return std::size_t{1};  // refused where it is read
    FieldReader fields(object_of(value), "sampling_params.");
    const std::size_t choices = read_choices(fields);
    LEVADA_RETURN_IF_ERROR(fields.status());
    return choices;
  };
  if (!params) return std::size_t{1};
  if (!params->is_array()) return of(*params);
  std::optional<std::size_t> all;
  for (const simdjson::dom::element item : array_of(*params)) {
    LEVADA_ASSIGN_OR_RETURN(const std::size_t choices, of(item));
    if (all.value_or(choices) != choices)
      return invalid_argument("must be the same for all prompts", "sampling_params.n");
    all = choices;
  }
  return all.value_or(1);
}

// The names the client gave, or fresh ones.
Result<std::vector<std::string>> read_rids(const ParseContext& context, const FieldReader& fields,
                                           const Prompts& prompts) {
  const std::size_t count = prompts.items.size();
  std::vector<std::string> rids;
  const auto value = fields.find("rid");
  if (!value) {
    for (std::size_t i = 0; i < count; ++i) rids.push_back(context.new_id());
    return rids;
  }
  const bool list = value->is_array();
  if (list != prompts.batch || (!list && !value->is_string())) {
    return invalid_argument("must be a string for one prompt and a list of strings for a batch", "rid");
  }
  if (!list) {
    rids.emplace_back(string_of(*value));
  } else {
    for (const simdjson::dom::element item : array_of(*value)) {
      if (!item.is_string()) return invalid_argument("must be strings, got " + describe_type(item), "rid");
      rids.emplace_back(string_of(item));
    }
  }
  if (rids.size() != count) {
    return invalid_argument("must have one entry for each of the " + std::to_string(count) + " prompts", "rid");
  }
  for (const std::string& rid : rids) LEVADA_RETURN_IF_ERROR(check_rid(rid, "rid"));
  if (std::set<std::string>(rids.begin(), rids.end()).size() != rids.size()) {
    return invalid_argument("holds the same name twice", "rid");
  }
  return rids;
}

}  // namespace

Result<CallSpec> parse_generate(const ParseContext& context, simdjson::dom::object body) {
  FieldReader fields(body);
  Envelope envelope = read_envelope(fields, true);
  refuse_unserved(fields, Body::kGenerate);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_ASSIGN_OR_RETURN(Prompts prompts, read_prompts(context.model, fields));
  if (!asks_for_captures(body)) {
    for (const auto& prompt : prompts.items) LEVADA_RETURN_IF_ERROR(prompt.status());
  }
  LEVADA_ASSIGN_OR_RETURN(std::vector<std::string> rids, read_rids(context, fields, prompts));

  CallSpec call;
  call.dialect = Dialect::kGenerate;
  call.id = rids.front();
  call.model = context.model.served_name;
  call.stream = envelope.stream;
  call.tokenizer = context.model.tokenizer;
  call.hidden_size = std::max(context.model.info.hidden_size, 1);
  fields.boolean("return_text_in_logprobs", &call.token_texts);
  LEVADA_RETURN_IF_ERROR(fields.status());
  const auto params = fields.find("sampling_params");
  LEVADA_ASSIGN_OR_RETURN(call.choices, read_all_choices(params));
  call.batch = prompts.batch || call.choices > 1;
  const std::size_t count = prompts.items.size();
  const bool each = params && params->is_array();
  for (std::size_t i = 0; i < count; ++i) {
    LEVADA_ASSIGN_OR_RETURN(const auto entry, entry_for(params, "sampling_params", i, count));
    const std::string field = each ? "sampling_params[" + std::to_string(i) + "]" : "sampling_params";
    const Status fault = prompts.items[i].status();
    std::vector<core::Token> tokens = fault.ok() ? std::move(*prompts.items[i]) : std::vector<core::Token>();
    LEVADA_ASSIGN_OR_RETURN(const core::SamplingParams sampling, read_sampling(context, entry, field, tokens.size()));
    LEVADA_RETURN_IF_ERROR(read_own_key(fields, i, count, envelope));
    core::Request request = make_request(context, envelope, std::move(tokens), sampling);
    LEVADA_ASSIGN_OR_RETURN(const PromptWishes wishes, PromptWishes::read(fields, i, count));
    LEVADA_RETURN_IF_ERROR(wishes.apply(context.model, request));
    LEVADA_RETURN_IF_ERROR(add_members(context, std::move(request), rids[i], call));
    call.members.back().fault = fault;
    LEVADA_ASSIGN_OR_RETURN(const auto guide, read_form(entry, field));
    LEVADA_RETURN_IF_ERROR(add_guides(context.model, guide, {}, std::span(call.members).last(call.choices)));
  }
  if (asks_for_captures(body) && call.choices > 1) return invalid_argument("a capture has one", "sampling_params.n");
  return call;
}

}  // namespace levada::serve
