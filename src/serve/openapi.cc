#include "serve/openapi.h"

#include <nlohmann/json.hpp>

#include "serve/admin_routes.h"
#include "serve/chat_adapter.h"
#include "serve/draft_routes.h"
#include "serve/field_reader.h"
#include "serve/snapshot_json.h"
#include "serve/text_routes.h"

namespace levada::serve {

namespace {

using Json = nlohmann::ordered_json;
using Read = Status (*)(const ModelContext&, simdjson::dom::object);

template <auto parse>
Status read_call(const ModelContext& model, simdjson::dom::object body) {
  return parse({model, [] { return std::uint64_t{0}; }, [] { return std::string("id"); }, 0}, body).status();
}

template <auto work>
Status read_text(const ModelContext& model, simdjson::dom::object body) {
  return work(model, body).status();
}

// How a route's body is read, and a small body that makes its parser ask for all it knows.
struct RouteBody {
  std::string_view path;
  Read read;
  const char* small;
  std::string_view required;  // a field without which there is no request; empty: several ways
  bool streams = false;
};

constexpr const char* kSmallChat = R"({"messages":[{"role":"user","content":"x"}],"stream_options":{}})";
constexpr const char* kSmallMessages = R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}]})";

constexpr RouteBody kBodies[] = {
    {"/v1/chat/completions", read_call<parse_chat>, kSmallChat, "messages", true},
    {"/v1/completions", read_call<parse_completion>, R"({"prompt":"x","stream_options":{}})", "prompt", true},
    {"/v1/responses", read_call<parse_responses>, R"({"input":"x","text":{"format":{"type":"text"}},"reasoning":{}})",
     "input", true},
    {"/v1/messages", read_call<parse_messages>, kSmallMessages, "messages", true},
    {"/v1/messages/count_tokens", read_text<count_message_tokens>, kSmallMessages, "messages"},
    {"/v1/embeddings", read_call<parse_embedding>, R"({"input":"x"})", "input"},
    {"/generate", read_call<parse_generate>, R"({"text":"x","sampling_params":{}})", "", true},
    {"/tokenize", read_text<tokenize>, R"({"prompt":"x"})", "prompt"},
    {"/detokenize", read_text<detokenize>, R"({"tokens":[0]})", "tokens"},
    {"/abort_request", [](const ModelContext&, simdjson::dom::object body) { return parse_abort(body).status(); },
     R"({"abort_all":true})", ""},
    {"/drafts", [](const ModelContext&, simdjson::dom::object body) { return parse_draft_order(body).status(); },
     R"({"path":"x"})", "path"},
};

// Fields that are lists or objects, whose shape no single question tells.
struct Shape {
  std::string_view field;
  const char* schema;
};

constexpr const char* kTextOrTexts =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"},"minItems":1}]})";
constexpr const char* kTools = R"({"type":"array","items":{"type":"object"}})";

constexpr Shape kShapes[] = {
    {"messages",
     R"({"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],"properties":{
       "role":{"enum":["user","assistant"]},"content":{"anyOf":[{"type":"string"},{"type":"array","items":
       {"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]}}}})"},
    {"input",
     R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],
       "properties":{"role":{"enum":["user","assistant","system","developer"]},"content":{"type":"string"}}}}]})"},
    {"system", R"({"type":"string"})"},
    {"instructions", R"({"type":"string"})"},
    {"max_output_tokens", R"({"type":"integer","minimum":1})"},
    {"max_tokens", R"({"type":"integer","minimum":1})"},
    {"prompt",
     R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"string"}},
       {"type":"array","minItems":1,"items":{"type":"integer","minimum":0}}]})"},
    {"text", kTextOrTexts},
    {"input_ids", R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0}})"},
    {"tokens", R"({"type":"array","items":{"type":"integer","minimum":0}})"},
    {"stop", R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","items":{"type":"string","minLength":1}}]})"},
    {"stop_sequences", R"({"type":"array","items":{"type":"string","minLength":1}})"},
    {"stop_token_ids", R"({"type":"array","items":{"type":"integer","minimum":0}})"},
    {"logit_bias", R"({"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}})"},
    {"chat_template_kwargs", R"({"type":"object"})"},
    {"tools", kTools},
    {"tool_choice", R"({"anyOf":[{"enum":["none","auto","required"]},{"type":"object"}]})"},
    {"response_format",
     R"({"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema"]}}})"},
    {"metadata", R"({"type":"object"})"},
    {"background", R"({"const":false})"},
    {"truncation", R"({"const":"disabled"})"},
};

Json schema_of(const FieldQuestion& question) {
  Json schema = Json::object();
  switch (question.kind) {
    case FieldQuestion::Kind::kNumber: schema["type"] = "number"; break;
    case FieldQuestion::Kind::kInteger: schema["type"] = "integer"; break;
    case FieldQuestion::Kind::kBoolean: schema["type"] = "boolean"; break;
    case FieldQuestion::Kind::kText: schema["type"] = "string"; break;
    case FieldQuestion::Kind::kAny:
      for (const Shape& shape : kShapes) {
        if (shape.field == question.path) return Json::parse(shape.schema);
      }
  }
  if (!question.range) return schema;
  const auto bound = [&](double value) {
    return question.kind == FieldQuestion::Kind::kInteger ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  constexpr double kExact = 9e15;  // beyond, doubles do not name one integer
  if (question.range->min > -kExact) {
    schema[question.range->open_min ? "exclusiveMinimum" : "minimum"] = bound(question.range->min);
  }
  if (question.range->max < kExact) schema["maximum"] = bound(question.range->max);
  return schema;
}

void add_property(const FieldQuestion& question, Json& object) {
  Json* at = &object;
  std::string_view path = question.path;
  for (std::size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1)) {
    at = &(*at)["properties"][std::string(path.substr(0, dot))];
    (*at)["type"] = "object";
  }
  Json& property = (*at)["properties"][std::string(path)];
  if (property.is_null()) property = schema_of(question);
}

Json body_schema(const ModelContext& model, const RouteBody& body) {
  simdjson::dom::parser parser;
  const std::string small = body.small;
  const auto object = parse_object(parser, small);
  LEVADA_CHECK(object.ok(), "a small body must be JSON");
  const FieldWitness witness;
  // A server without tokenizer or template refuses it; what it asked for until then is what it takes.
  (void)body.read(model, *object);
  Json schema = {{"type", "object"}};
  for (const FieldQuestion& question : witness.heard()) {
    if (question.path.find('[') == std::string::npos) add_property(question, schema);
  }
  if (!body.required.empty()) schema["required"] = Json::array({std::string(body.required)});
  return schema;
}

Json answer(bool streams) {
  Json content = {{"application/json", Json::object()}};
  if (streams) content["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  return {{"description", "OK"}, {"content", content}};
}

Json operation(const ModelContext& model, const Router::Declared& route) {
  Json operation = {{"operationId", route.method + route.path}};
  if (route.access != Access::kOpen) operation["security"] = Json::array({{{"key", Json::array()}}});
  const RouteBody* found = nullptr;
  for (const RouteBody& body : kBodies) {
    if (body.path == route.path && route.method == "POST") found = &body;
  }
  if (found != nullptr) {
    operation["requestBody"] = {{"required", true},
                                {"content", {{"application/json", {{"schema", body_schema(model, *found)}}}}}};
  }
  Json ok = answer(found != nullptr && found->streams);
  if (route.path == "/") ok["content"] = {{"text/html", Json::object()}};
  if (route.path == "/metrics") ok["content"] = {{"text/plain", Json::object()}};
  operation["responses"] = {
      {"200", ok},
      {"default",
       {{"description", "why not"},
        {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}}}};
  return operation;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string openapi_document(const ModelContext& model, const std::vector<Router::Declared>& routes,
                             const std::string& version) {
  Json document = {{"openapi", "3.1.0"}, {"info", {{"title", "levada"}, {"version", version}}}};
  Json& paths = document["paths"] = Json::object();
  for (const Router::Declared& route : routes) paths[route.path][lower_case(route.method)] = operation(model, route);
  document["components"]["schemas"]["Error"] = Json::parse(
      R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",
          "required":["message","type","param","code"],"properties":{"message":{"type":"string"},"type":{"type":"string"},
          "param":{"type":["string","null"]},"code":{"type":["integer","string"]}}}}})");
  document["components"]["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
  return dump(document);
}

}  // namespace levada::serve
