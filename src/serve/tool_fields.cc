#include "serve/tool_fields.h"

#include <algorithm>
#include <utility>

#include "serve/json_text.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

constexpr std::size_t kMostTools = 128;
constexpr std::size_t kMaxToolNameBytes = 64;

struct Listed {
  reply::Tool tool;
  std::string schema = R"({"type":"object","additionalProperties":false})";  // of one without parameters
};

struct Choice {
  enum Kind { kAuto, kNone, kRequired, kNamed } kind = kAuto;
  std::string name;
};

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

Result<FieldReader> object_field(const FieldReader& fields, std::string_view name) {
  const auto value = fields.find(name);
  if (!value) return invalid_argument("is missing", fields.path(name));
  if (!value->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*value), fields.path(name));
  }
  return FieldReader(object_of(*value), fields.path(name) + ".");
}

Result<std::string> function_name(FieldReader& function) {
  std::optional<std::string> name;
  function.text("name", kMaxToolNameBytes, &name);
  if (!name) function.fail("name", "is missing");
  if (name && !is_name(*name)) function.fail("name", "must be letters, digits, '_', '-' or '.'");
  LEVADA_RETURN_IF_ERROR(function.status());
  return *name;
}

// The parameters whose schema says that they are texts.
std::vector<std::string> text_parameters(simdjson::dom::object schema) {
  std::vector<std::string> texts;
  const FieldReader fields(schema);
  const auto properties = fields.find("properties");
  if (!properties || !properties->is_object()) return texts;
  for (const auto [name, property] : object_of(*properties)) {
    if (!property.is_object()) continue;
    const auto type = FieldReader(object_of(property)).find("type");
    if (type && type->is_string() && string_of(*type) == "string") texts.emplace_back(name);
  }
  return texts;
}

Result<Listed> read_tool(element tool, const std::string& path) {
  if (!tool.is_object()) return invalid_argument("must be an object, got " + describe_type(tool), path);
  FieldReader fields(object_of(tool), path + ".");
  std::optional<std::string> type;
  fields.text("type", kMaxToolNameBytes, &type);
  if (type.value_or("function") != "function") fields.fail("type", "must be function, got '" + *type + "'");
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_ASSIGN_OR_RETURN(FieldReader function, object_field(fields, "function"));
  Listed listed;
  LEVADA_ASSIGN_OR_RETURN(listed.tool.name, function_name(function));
  const auto parameters = function.find("parameters");
  if (!parameters) return listed;
  if (!parameters->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*parameters), function.path("parameters"));
  }
  listed.tool.text_parameters = text_parameters(object_of(*parameters));
  listed.schema = object_of(*parameters).size() > 0 ? simdjson::minify(*parameters) : R"({"type":"object"})";
  return listed;
}

Result<std::vector<Listed>> read_list(const FieldReader& fields) {
  std::vector<Listed> list;
  const auto tools = fields.find("tools");
  if (!tools) return list;
  const std::string path = fields.path("tools");
  if (!tools->is_array()) return invalid_argument("must be a list, got " + describe_type(*tools), path);
  for (const element tool : array_of(*tools)) {
    if (list.size() == kMostTools) {
      return invalid_argument("holds more than " + std::to_string(kMostTools) + " tools", path);
    }
    const std::string tool_path = path + "[" + std::to_string(list.size()) + "]";
    LEVADA_ASSIGN_OR_RETURN(Listed listed, read_tool(tool, tool_path));
    const bool twice =
        std::any_of(list.begin(), list.end(), [&](const Listed& other) { return other.tool.name == listed.tool.name; });
    if (twice) return invalid_argument("the name '" + listed.tool.name + "' is taken", tool_path + ".function.name");
    list.push_back(std::move(listed));
  }
  return list;
}

// "any", {type: auto | none | required | any}, {type: function | tool, name}: what Anthropic's and the responses' clients
// send. nullopt: none of them.
std::optional<Choice> normalized(element value) {
  std::string_view word = value.is_string() ? string_of(value) : std::string_view();
  if (value.is_object()) {
    const FieldReader choice(object_of(value));
    const auto type = choice.find("type"), name = choice.find("name");
    if (!type || !type->is_string()) return std::nullopt;
    word = string_of(*type);
    if ((word == "function" || word == "tool") && name && name->is_string()) {
      return Choice{Choice::kNamed, std::string(string_of(*name))};
    }
  }
  if (word == "auto") return Choice{};
  if (word == "none") return Choice{Choice::kNone, {}};
  if (word == "required" || word == "any") return Choice{Choice::kRequired, {}};
  return std::nullopt;
}

Result<Choice> read_choice(const FieldReader& fields, bool normalize) {
  const auto value = fields.find("tool_choice");
  if (!value) return Choice{};
  if (normalize) {
    if (const auto choice = normalized(*value)) return *choice;
  }
  if (value->is_object()) {
    const FieldReader choice(object_of(*value), fields.path("tool_choice") + ".");
    LEVADA_ASSIGN_OR_RETURN(FieldReader function, object_field(choice, "function"));
    LEVADA_ASSIGN_OR_RETURN(std::string name, function_name(function));
    return Choice{Choice::kNamed, std::move(name)};
  }
  const std::string_view word = value->is_string() ? string_of(*value) : std::string_view();
  if (word == "auto") return Choice{};
  if (word == "none") return Choice{Choice::kNone, {}};
  if (word == "required") return Choice{Choice::kRequired, {}};
  return invalid_argument("must be none, auto, required or {type: function, function: {name}}",
                          fields.path("tool_choice"));
}

struct CallSyntax {
  const char *before_name, *before_arguments, *end, *separator, *style;
};

CallSyntax syntax_of(reply::CallFormat format) {
  switch (format) {
    case reply::CallFormat::kHermes:
      return {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n", "json"};
    case reply::CallFormat::kLlama3: return {"{\"name\": \"", "\", \"parameters\": ", "}", "; ", "json"};
    case reply::CallFormat::kGlm: break;
  }
  return {"<tool_call>", "\n", "\n</tool_call>", "\n", "glm_xml"};
}

// One call or more of these tools, and nothing else.
GuideWish forced_calls(const std::vector<Listed>& tools, reply::CallFormat format, bool one) {
  const CallSyntax syntax = syntax_of(format);
  std::string tag = R"({"type":"structural_tag","format":{"type":"tags_with_separator","at_least_one":true,)";
  tag += std::string("\"stop_after_first\":") + (one ? "true" : "false") + ",\"separator\":";
  append_json_string(tag, syntax.separator);
  tag += ",\"tags\":[";
  for (const Listed& listed : tools) {
    if (&listed != &tools.front()) tag += ',';
    tag += R"({"type":"tag","begin":)";
    append_json_string(tag, syntax.before_name + listed.tool.name + syntax.before_arguments);
    tag += std::string(R"(,"content":{"type":"json_schema","style":")") + syntax.style + R"(","json_schema":)" +
           listed.schema + "},\"end\":";
    append_json_string(tag, syntax.end);
    tag += '}';
  }
  tag += "]}}";
  return {{grammar::Source::Kind::kStructuralTag, std::move(tag)}, "tools"};
}

}  // namespace

Result<ToolWish> read_tools(const FieldReader& fields, const ToolRules& rules) {
  LEVADA_ASSIGN_OR_RETURN(const Choice choice, read_choice(fields, rules.normalize_choice));
  ToolWish wish;
  if (choice.kind == Choice::kNone) {
    const auto tools = fields.find("tools");
    if (tools && !tools->is_array()) {
      return invalid_argument("must be a list, got " + describe_type(*tools), fields.path("tools"));
    }
    return wish;
  }
  LEVADA_ASSIGN_OR_RETURN(std::vector<Listed> listed, read_list(fields));
  bool parallel = true;
  FieldReader flags = fields;
  flags.boolean("parallel_tool_calls", &parallel);
  LEVADA_RETURN_IF_ERROR(flags.status());
  if (listed.empty()) {
    if (choice.kind == Choice::kAuto) return wish;
    return invalid_argument("asks for a call, but there are no tools", fields.path("tool_choice"));
  }
  wish.listed = simdjson::minify(*fields.find("tools"));
  for (const Listed& tool : listed) wish.tools.push_back(tool.tool);
  if (choice.kind == Choice::kNamed) {
    std::erase_if(listed, [&](const Listed& tool) { return tool.tool.name != choice.name; });
    if (listed.empty()) {
      return invalid_argument("'" + choice.name + "' is none of the tools", fields.path("tool_choice.function.name"));
    }
  }
  if (choice.kind != Choice::kAuto) {
    wish.forced = forced_calls(listed, rules.format, choice.kind == Choice::kNamed || !parallel);
  }
  return wish;
}

}  // namespace levada::serve
