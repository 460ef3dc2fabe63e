// What: strict typed look-ups in parsed JSON, each naming the field when it is missing or of another type.
// Owner: views into a simdjson document, which must outlive them.
// Thread: the parser's.
// Invariant: absent and null mean the same; a value of another type is kInvalidArgument with the field's name, never a
// guess. Private to this room's .cc files.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace levada::registry {

using Json = simdjson::dom::element;

inline std::optional<Json> json_member(Json object, std::string_view name) {
  Json found;
  if (object.at_key(name).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  return found;
}

// `T` is what simdjson's get() fills: std::string_view, bool, std::int64_t, std::uint64_t, dom::array, dom::object.
template <class T>
Result<T> json_as(Json value, std::string_view name, std::string_view wanted) {
  T out;
  if (value.get(out) != simdjson::SUCCESS) {
    return invalid_argument("must be " + std::string(wanted), std::string(name));
  }
  return out;
}

template <class T>
Result<T> json_required(Json object, std::string_view name, std::string_view wanted) {
  const auto found = json_member(object, name);
  if (!found) return invalid_argument("is missing; it must be " + std::string(wanted), std::string(name));
  return json_as<T>(*found, name, wanted);
}

inline Result<Json> parse_json_object(simdjson::dom::parser& parser, std::string_view text) {
  Json root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root); error != simdjson::SUCCESS) {
    return invalid_argument(std::string("not valid JSON: ") + simdjson::error_message(error));
  }
  if (!root.is_object()) return invalid_argument("must be a JSON object");
  return root;
}

}  // namespace levada::registry
