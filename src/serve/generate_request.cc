// The body of /generate, SGLang's native form: text or input_ids, one or a batch, sampling_params for all or for each.
#include <algorithm>
#include <limits>
#include <set>

#include "serve/capture_request.h"
#include "serve/guide_fields.h"
#include "serve/prompt.h"
#include "serve/request_envelope.h"
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
  call.batch = prompts.batch;
  const auto params = fields.find("sampling_params");
  const std::size_t count = prompts.items.size();
  const bool each = params && params->is_array();
  for (std::size_t i = 0; i < count; ++i) {
    LEVADA_ASSIGN_OR_RETURN(const auto entry, entry_for(params, "sampling_params", i, count));
    const std::string field = each ? "sampling_params[" + std::to_string(i) + "]" : "sampling_params";
    const Status fault = prompts.items[i].status();
    std::vector<core::Token> tokens = fault.ok() ? std::move(*prompts.items[i]) : std::vector<core::Token>();
    LEVADA_ASSIGN_OR_RETURN(const core::SamplingParams sampling, read_sampling(context, entry, field, tokens.size()));
    LEVADA_RETURN_IF_ERROR(read_own_key(fields, i, count, envelope));
    LEVADA_ASSIGN_OR_RETURN(const auto guide, read_form(entry, field));
    call.members.push_back({make_request(context, envelope, std::move(tokens), sampling), rids[i], fault});
    LEVADA_RETURN_IF_ERROR(add_guide(context.model, guide, call.members.back().request));
  }
  return call;
}

}  // namespace levada::serve
