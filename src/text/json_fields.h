// What: typed look-ups in a parsed JSON file, each naming the field when it has the wrong type.
// Owner: views into a simdjson document, which must outlive them.
// Thread: the parser's.
// Invariant: absent and null mean the same ("not said"); a value of another type is kDataLoss, never a guess. Private
// to this room's .cc files.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace levada::text {

using JsonElement = simdjson::dom::element;

// The member `name` of `object` if it is there and not null.
inline std::optional<JsonElement> member(JsonElement object, std::string_view name) {
  JsonElement found;
  if (object.at_key(name).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  return found;
}

inline Status wrong_type(std::string_view name, std::string_view wanted) {
  return data_loss(std::string(name) + " must be " + std::string(wanted));
}

// `T` is what simdjson's get() fills: std::string_view, bool, std::int64_t, dom::array, dom::object.
template <class T>
Result<T> required(JsonElement object, std::string_view name, std::string_view wanted) {
  const auto found = member(object, name);
  T value;
  if (!found || found->get(value) != simdjson::SUCCESS) return wrong_type(name, wanted);
  return value;
}

template <class T>
Result<T> optional_or(JsonElement object, std::string_view name, std::string_view wanted, T fallback) {
  if (!member(object, name)) return fallback;
  return required<T>(object, name, wanted);
}

}  // namespace levada::text
