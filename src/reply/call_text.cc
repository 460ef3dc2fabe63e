#include "reply/call_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "reply/tag_search.h"

namespace levada::reply {

namespace {

using Json = nlohmann::ordered_json;

const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto it = std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  return it == tools.end() ? nullptr : &*it;
}

// Writing JSON out recurses.
bool is_shallow(std::string_view text) {
  constexpr int kMostLevels = 64;
  int depth = 0;
  for (const char c : text) {
    if ((c == '{' || c == '[') && ++depth > kMostLevels) return false;
    if (c == '}' || c == ']') --depth;
  }
  return true;
}

// Discarded if it is none.
Json parse(std::string_view text) {
  if (!is_shallow(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

bool set_call(const std::string& name, const Json& arguments, Piece& call) {
  if (!arguments.is_object()) return false;
  call = {Piece::Kind::kCall, arguments.dump(-1, ' ', false, Json::error_handler_t::replace), name};
  return true;
}

// What stands between `begin` and `end` at the front of `text`, which is left behind them.
bool take(std::string_view& text, std::string_view begin, std::string_view end, std::string_view& inner) {
  const std::string_view rest = trimmed(text);
  if (!rest.starts_with(begin)) return false;
  const std::size_t at = rest.find(end, begin.size());
  if (at == std::string_view::npos) return false;
  inner = rest.substr(begin.size(), at - begin.size());
  text = rest.substr(at + end.size());
  return true;
}

}  // namespace

bool read_json_call(std::string_view text, const std::vector<Tool>& tools, Piece& call) {
  const Json given = parse(text);
  if (!given.is_object()) return false;
  const auto name = given.find("name");
  if (name == given.end() || !name->is_string() || find_tool(tools, name->get<std::string>()) == nullptr) return false;
  auto arguments = given.find("arguments");
  if (arguments == given.end()) arguments = given.find("parameters");
  if (arguments == given.end() || arguments->is_null()) return set_call(*name, Json::object(), call);
  if (arguments->is_string()) return set_call(*name, parse(arguments->get<std::string>()), call);
  return set_call(*name, *arguments, call);
}

bool read_glm_call(std::string_view text, const std::vector<Tool>& tools, Piece& call) {
  const std::size_t end = text.find("<arg_key>");
  const std::string name(trimmed(text.substr(0, end)));
  const Tool* tool = find_tool(tools, name);
  if (tool == nullptr) return false;
  std::string_view rest = end == std::string_view::npos ? std::string_view() : text.substr(end);
  Json arguments = Json::object();
  while (!trimmed(rest).empty()) {
    std::string_view key, value;
    if (!take(rest, "<arg_key>", "</arg_key>", key)) return false;
    if (!take(rest, "<arg_value>", "</arg_value>", value)) return false;
    const std::string parameter(trimmed(key));
    const auto& texts = tool->text_parameters;
    const bool is_text = std::find(texts.begin(), texts.end(), parameter) != texts.end();
    const Json read = is_text ? Json(Json::value_t::discarded) : parse(value);
    arguments[parameter] = read.is_discarded() ? Json(value) : read;  // a text keeps its blanks
  }
  return set_call(name, arguments, call);
}

}  // namespace levada::reply
