#include "serve/guide_fields.h"

#include <utility>

#include "serve/json_text.h"

namespace levada::serve {

namespace {

using grammar::Source;
using simdjson::dom::element;
using Wish = std::optional<GuideWish>;

constexpr const char* kAnyObject = R"({"type":"object"})";
constexpr std::size_t kNoLimit = SIZE_MAX;  // the compiler has its own

// A JSON value, or a string that holds one.
Wish json_wish(Source::Kind kind, element value, std::string field) {
  if (value.is_string()) return GuideWish{{kind, std::string(string_of(value))}, std::move(field)};
  return GuideWish{{kind, simdjson::minify(value)}, std::move(field)};
}

Result<Wish> response_schema(const FieldReader& format) {
  const auto described = format.find("json_schema");
  if (!described) return invalid_argument("is missing", format.path("json_schema"));
  if (!described->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*described), format.path("json_schema"));
  }
  const FieldReader inner(object_of(*described), format.path("json_schema") + ".");
  const auto schema = inner.find("schema");
  if (!schema) return invalid_argument("is missing", inner.path("schema"));
  if (!schema->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*schema), inner.path("schema"));
  }
  return json_wish(Source::Kind::kJsonSchema, *schema, inner.path("schema"));
}

Result<Wish> read_response_format(const FieldReader& fields) {
  const auto value = fields.find("response_format");
  if (!value) return Wish();
  const std::string field = fields.path("response_format");
  if (!value->is_object()) return invalid_argument("must be an object, got " + describe_type(*value), field);
  FieldReader format(object_of(*value), field + ".");
  std::optional<std::string> type;
  format.text("type", 64, &type);
  if (!type) format.fail("type", "is missing");
  LEVADA_RETURN_IF_ERROR(format.status());
  if (*type == "text") return Wish();
  if (*type == "json_object") return Wish(GuideWish{{Source::Kind::kJsonSchema, kAnyObject}, field});
  if (*type == "json_schema") return response_schema(format);
  if (*type == "structural_tag") return json_wish(Source::Kind::kStructuralTag, *value, field);
  return invalid_argument("must be text, json_object, json_schema or structural_tag, got '" + *type + "'",
                          format.path("type"));
}

// A second form is refused: an answer can't have both.
Status take(Wish fresh, Wish& wish) {
  if (!fresh) return {};
  if (wish) return invalid_argument("the answer's form is already given by " + wish->field, fresh->field);
  wish = std::move(fresh);
  return {};
}

Status read_text(const FieldReader& fields, const char* name, Source::Kind kind, Wish& wish) {
  FieldReader reader = fields;
  std::optional<std::string> text;
  reader.text(name, kNoLimit, &text);
  LEVADA_RETURN_IF_ERROR(reader.status());
  return text && !text->empty() ? take(GuideWish{{kind, std::move(*text)}, fields.path(name)}, wish) : Status();
}

Status read_json(const FieldReader& fields, const char* name, Source::Kind kind, Wish& wish) {
  const auto value = fields.find(name);
  if (!value || (value->is_string() && string_of(*value).empty())) return {};
  if (!value->is_object() && !value->is_string()) {
    return invalid_argument("must be an object, or a string that holds one, got " + describe_type(*value),
                            fields.path(name));
  }
  return take(json_wish(kind, *value, fields.path(name)), wish);
}

Status read_texts(const FieldReader& fields, Wish& wish) {
  LEVADA_RETURN_IF_ERROR(read_text(fields, "regex", Source::Kind::kRegex, wish));
  return read_text(fields, "ebnf", Source::Kind::kEbnf, wish);
}

// A list of texts, of which the answer is one.
Status read_texts_to_choose(const FieldReader& fields, const char* name, Wish& wish) {
  constexpr std::size_t kMostChoices = 4096;
  const auto value = fields.find(name);
  if (!value) return {};
  const std::string field = fields.path(name);
  if (!value->is_array()) return invalid_argument("must be a list of strings, got " + describe_type(*value), field);
  if (array_of(*value).size() > kMostChoices) {
    return invalid_argument("holds more than " + std::to_string(kMostChoices) + " strings", field);
  }
  if (array_of(*value).size() == 0) return invalid_argument("must hold at least one string", field);
  std::string rule;
  for (const element choice : array_of(*value)) {
    if (!choice.is_string()) return invalid_argument("must hold strings only, got " + describe_type(choice), field);
    rule += rule.empty() ? "root ::= " : " | ";
    append_json_string(rule, string_of(choice));
  }
  return take(GuideWish{{Source::Kind::kEbnf, std::move(rule)}, field}, wish);
}

// vLLM's names, older and newer: guided_json, structured_outputs.json, …
Status read_vllm(const FieldReader& fields, const std::string& prefix, Wish& wish) {
  LEVADA_RETURN_IF_ERROR(read_json(fields, (prefix + "json").c_str(), Source::Kind::kJsonSchema, wish));
  LEVADA_RETURN_IF_ERROR(read_text(fields, (prefix + "regex").c_str(), Source::Kind::kRegex, wish));
  LEVADA_RETURN_IF_ERROR(read_texts_to_choose(fields, (prefix + "choice").c_str(), wish));
  return read_text(fields, (prefix + "grammar").c_str(), Source::Kind::kEbnf, wish);
}

Status read_structured_outputs(const FieldReader& fields, Wish& wish) {
  const auto value = fields.find("structured_outputs");
  if (!value) return {};
  const std::string field = fields.path("structured_outputs");
  if (!value->is_object()) return invalid_argument("must be an object, got " + describe_type(*value), field);
  FieldReader inner(object_of(*value), field + ".");
  LEVADA_RETURN_IF_ERROR(read_vllm(inner, "", wish));
  bool any_object = false;
  inner.boolean("json_object", &any_object);
  LEVADA_RETURN_IF_ERROR(inner.status());
  if (any_object) {
    LEVADA_RETURN_IF_ERROR(take(GuideWish{{Source::Kind::kJsonSchema, kAnyObject}, inner.path("json_object")}, wish));
  }
  return read_json(inner, "structural_tag", Source::Kind::kStructuralTag, wish);
}

Result<std::shared_ptr<const grammar::Grammar>> compile(const ModelContext& model, const GuideWish& wish) {
  if (model.grammars == nullptr) {
    return invalid_argument("this server runs without a tokenizer: answers have no form", wish.field);
  }
  auto grammar = model.grammars->compile(wish.source);
  if (!grammar.ok()) return Status(grammar.status().code(), grammar.status().message(), wish.field);
  return grammar;
}

}  // namespace

Result<std::optional<GuideWish>> read_openai_guide(const FieldReader& fields) {
  LEVADA_ASSIGN_OR_RETURN(Wish wish, read_response_format(fields));
  LEVADA_RETURN_IF_ERROR(read_texts(fields, wish));
  LEVADA_RETURN_IF_ERROR(read_vllm(fields, "guided_", wish));
  LEVADA_RETURN_IF_ERROR(read_structured_outputs(fields, wish));
  return wish;
}

Result<std::optional<GuideWish>> read_native_guide(const FieldReader& fields) {
  Wish wish;
  LEVADA_RETURN_IF_ERROR(read_json(fields, "json_schema", Source::Kind::kJsonSchema, wish));
  LEVADA_RETURN_IF_ERROR(read_texts(fields, wish));
  LEVADA_RETURN_IF_ERROR(read_json(fields, "structural_tag", Source::Kind::kStructuralTag, wish));
  return wish;
}

Status add_guides(const ModelContext& model, const std::optional<GuideWish>& wish,
                  const std::optional<ReasoningTokens>& reasoning, std::span<Member> members) {
  if (!wish) return {};
  LEVADA_ASSIGN_OR_RETURN(const auto grammar, compile(model, *wish));
  for (Member& member : members) member.request.guide = std::make_shared<GrammarGuide>(grammar, reasoning);
  return {};
}

}  // namespace levada::serve
