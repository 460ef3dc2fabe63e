#include "serve/field_reader.h"

#include <cmath>
#include <cstdio>

#include "serve/json_fault.h"

namespace levada::serve {

namespace {

using simdjson::dom::element_type;

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kFirstCapacityBytes = 64 << 10;

std::string format_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// What simdjson refused, by its place where one value is at fault.
Status parse_failure(const std::string& body, simdjson::error_code error) {
  if (error == simdjson::EMPTY) return invalid_argument("the request body is empty; a JSON object is needed");
  LEVADA_RETURN_IF_ERROR(find_json_fault(body, kMaxDepth));
  if (error == simdjson::UTF8_ERROR) return invalid_argument("the request body is not valid UTF-8");
  return invalid_argument(std::string("the request body is not valid JSON: ") + simdjson::error_message(error));
}

}  // namespace

Result<simdjson::dom::object> parse_object(simdjson::dom::parser& parser, const std::string& body) {
  if (parser.max_depth() != kMaxDepth + 1) {
    if (const auto error = parser.allocate(kFirstCapacityBytes, kMaxDepth + 1); error != simdjson::SUCCESS) {
      return resource_exhausted("not enough memory to parse the request body");
    }
  }
  simdjson::dom::element root;
  if (const auto error = parser.parse(body).get(root); error != simdjson::SUCCESS) {
    return parse_failure(body, error);
  }
  if (may_hold_surrogates(body)) LEVADA_RETURN_IF_ERROR(find_json_fault(body, kMaxDepth));
  simdjson::dom::object object;
  if (root.get_object().get(object) != simdjson::SUCCESS) {
    return invalid_argument("the request body must be a JSON object, got " + describe_type(root));
  }
  return object;
}

std::string describe_type(simdjson::dom::element element) {
  switch (element.type()) {
    case element_type::ARRAY: return "a list";
    case element_type::OBJECT: return "an object";
    case element_type::STRING: return "a string";
    case element_type::BOOL: return "a boolean";
    case element_type::NULL_VALUE: return "null";
    case element_type::DOUBLE: return "the number " + format_number(element.get_double().value_unsafe());
    default: return "the integer " + simdjson::minify(element);
  }
}

simdjson::dom::array array_of(simdjson::dom::element element) {
  simdjson::dom::array array;
  LEVADA_CHECK(element.get_array().get(array) == simdjson::SUCCESS, "the element's type was checked");
  return array;
}

simdjson::dom::object object_of(simdjson::dom::element element) {
  simdjson::dom::object object;
  LEVADA_CHECK(element.get_object().get(object) == simdjson::SUCCESS, "the element's type was checked");
  return object;
}

std::string_view string_of(simdjson::dom::element element) {
  std::string_view text;
  LEVADA_CHECK(element.get_string().get(text) == simdjson::SUCCESS, "the element's type was checked");
  return text;
}

std::optional<std::int64_t> integer_of(simdjson::dom::element element) {
  std::int64_t integer;
  if (element.get_int64().get(integer) == simdjson::SUCCESS) return integer;
  double number;
  if (element.type() != element_type::DOUBLE || element.get_double().get(number) != simdjson::SUCCESS) return {};
  if (number != std::floor(number) || std::fabs(number) > 9e15) return {};
  return static_cast<std::int64_t>(number);
}

namespace {

thread_local FieldWitness* witness = nullptr;

}  // namespace

FieldWitness::FieldWitness() {
  LEVADA_CHECK(witness == nullptr, "one witness at a time");
  witness = this;
}

FieldWitness::~FieldWitness() { witness = nullptr; }

FieldWitness::Refining::Refining() {
  if (witness != nullptr) witness->refining_ = true;
}

FieldWitness::Refining::~Refining() {
  if (witness != nullptr) witness->refining_ = false;
}

void FieldWitness::hear(FieldQuestion question) {
  for (FieldQuestion& known : heard_) {
    if (known.path != question.path) continue;
    if (known.kind == FieldQuestion::Kind::kAny) known = std::move(question);
    return;
  }
  if (!refining_) heard_.push_back(std::move(question));
}

void FieldReader::tell(std::string_view name, FieldQuestion::Kind kind, std::optional<NumberRange> range) const {
  if (witness != nullptr) witness->hear({path(name), kind, range});
}

std::optional<simdjson::dom::element> FieldReader::find(std::string_view name) const {
  tell(name, FieldQuestion::Kind::kAny);
  return peek(name);
}

std::optional<simdjson::dom::element> FieldReader::peek(std::string_view name) const {
  simdjson::dom::element element;
  if (object_.at_key(name).get(element) != simdjson::SUCCESS || element.is_null()) return {};
  return element;
}

void FieldReader::number(std::string_view name, NumberRange range, float* target) {
  tell(name, FieldQuestion::Kind::kNumber, range);
  const auto element = peek(name);
  if (!element) return;
  double value;
  const bool is_number = element->is_number() && element->get_double().get(value) == simdjson::SUCCESS;
  if (!is_number) return fail(name, "must be a number, got " + describe_type(*element));
  const bool inside =
      std::isfinite(value) && value <= range.max && (range.open_min ? value > range.min : value >= range.min);
  if (!inside) {
    return fail(name, "must be in " + std::string(range.open_min ? "(" : "[") + format_number(range.min) + ", " +
                          format_number(range.max) + "], got " + format_number(value));
  }
  *target = static_cast<float>(value);
}

void FieldReader::integer(std::string_view name, std::int64_t min, std::int64_t max,
                          std::optional<std::int64_t>* target) {
  tell(name, FieldQuestion::Kind::kInteger, NumberRange{static_cast<double>(min), static_cast<double>(max)});
  const auto element = peek(name);
  if (!element) return;
  const auto value = integer_of(*element);
  if (!value && !element->is_uint64()) return fail(name, "must be an integer, got " + describe_type(*element));
  if (!value || *value < min || *value > max) {
    return fail(name, "must be in [" + std::to_string(min) + ", " + std::to_string(max) + "], got " +
                          simdjson::minify(*element));
  }
  *target = *value;
}

void FieldReader::boolean(std::string_view name, bool* target) {
  tell(name, FieldQuestion::Kind::kBoolean);
  const auto element = peek(name);
  if (!element) return;
  if (!element->is_bool()) return fail(name, "must be true or false, got " + describe_type(*element));
  *target = element->get_bool().value_unsafe();
}

void FieldReader::text(std::string_view name, std::size_t max_bytes, std::optional<std::string>* target) {
  tell(name, FieldQuestion::Kind::kText);
  const auto element = peek(name);
  if (!element) return;
  if (!element->is_string()) return fail(name, "must be a string, got " + describe_type(*element));
  const std::string_view value = string_of(*element);
  if (value.size() > max_bytes) {
    return fail(name, "is " + std::to_string(value.size()) + " bytes long; the limit is " + std::to_string(max_bytes));
  }
  *target = std::string(value);
}

}  // namespace levada::serve
