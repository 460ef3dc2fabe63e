// What: FieldReader, the border where a JSON object's fields become checked values (law 11).
// Owner: the parser of one request; it reads from a simdjson document that must outlive it.
// Thread: its owner's.
// Invariant: the first failure is kept and names the field, what was given and what is allowed; absent and null are the
// same and leave the target alone; fields nobody asks for are ignored.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace levada::serve {

// Parses a request body into its one object, in which every string is valid UTF-8: kInvalidArgument for anything that
// is not well-formed JSON, is nested deeper than 64 levels, holds a number outside 64 bits or half of a surrogate pair
// (each named by its path), or is not an object. The document lives in `parser`.
Result<simdjson::dom::object> parse_object(simdjson::dom::parser& parser, const std::string& body);

// "a string", "a list", ... for messages.
std::string describe_type(simdjson::dom::element element);

// The value of an element whose type has been checked. By value: simdjson's own accessors refer into temporaries.
simdjson::dom::array array_of(simdjson::dom::element element);
simdjson::dom::object object_of(simdjson::dom::element element);
std::string_view string_of(simdjson::dom::element element);
// The value as an integer if it is one, in either spelling (3 or 3.0).
std::optional<std::int64_t> integer_of(simdjson::dom::element element);

struct NumberRange {
  double min, max;
  bool open_min = false;  // min itself is refused
};

// What a parser asked of a body.
struct FieldQuestion {
  enum class Kind : std::uint8_t { kAny, kNumber, kInteger, kBoolean, kText };
  std::string path;
  Kind kind = Kind::kAny;
  std::optional<NumberRange> range;  // of numbers and integers
};

// Hears what the parsers of this thread ask while it lives: this is how /openapi.json knows the fields (openapi.h). Of
// several questions for one field it keeps the most telling.
class FieldWitness {
 public:
  FieldWitness();
  FieldWitness(const FieldWitness&) = delete;
  FieldWitness& operator=(const FieldWitness&) = delete;
  ~FieldWitness();
  const std::vector<FieldQuestion>& heard() const { return heard_; }

  // While it lives nothing new is heard, only more about what was: for a body that was made out of the client's.
  class Refining {
   public:
    Refining();
    Refining(const Refining&) = delete;
    Refining& operator=(const Refining&) = delete;
    ~Refining();
  };

 private:
  friend class FieldReader;
  void hear(FieldQuestion question);
  std::vector<FieldQuestion> heard_;
  bool refining_ = false;
};

class FieldReader {
 public:
  explicit FieldReader(simdjson::dom::object object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  void number(std::string_view name, NumberRange range, float* target);
  // Accepts 3 and 3.0.
  void integer(std::string_view name, std::int64_t min, std::int64_t max, std::optional<std::int64_t>* target);
  void boolean(std::string_view name, bool* target);
  // Text holds at most `max_bytes`.
  void text(std::string_view name, std::size_t max_bytes, std::optional<std::string>* target);

  // Absent and null give nullopt.
  std::optional<simdjson::dom::element> find(std::string_view name) const;
  // The same for a field that isn't served: no witness hears of it.
  std::optional<simdjson::dom::element> peek(std::string_view name) const;
  // "sampling_params.stop"
  std::string path(std::string_view name) const { return prefix_ + std::string(name); }
  void fail(Status failure) {
    if (status_.ok()) status_ = std::move(failure);  // an ok Status changes nothing
  }
  void fail(std::string_view name, std::string message) { fail(invalid_argument(std::move(message), path(name))); }
  const Status& status() const { return status_; }

 private:
  void tell(std::string_view name, FieldQuestion::Kind kind, std::optional<NumberRange> range = {}) const;

  simdjson::dom::object object_;
  std::string prefix_;
  Status status_;
};

}  // namespace levada::serve
