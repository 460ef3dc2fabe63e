#include "up/events.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace levada::up {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxLine = 1 << 20;

// Reads fields of one object; a missing one keeps its default, a wrong type makes the whole line no event.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  void read(const char* name, std::string& value) {
    if (const Json* field = find(name)) field->is_string() ? void(value = *field) : fail();
  }
  void read(const char* name, std::int64_t& value) {
    if (const Json* field = find(name)) field->is_number_integer() ? void(value = *field) : fail();
  }
  void read(const char* name, double& value) {
    if (const Json* field = find(name)) field->is_number() ? void(value = *field) : fail();
    if (!std::isfinite(value)) fail();
  }
  void read(const char* name, bool& value) {
    if (const Json* field = find(name)) field->is_boolean() ? void(value = *field) : fail();
  }
  void read(const char* name, std::map<std::string, std::int64_t>& value) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_object()) return fail();
    for (const auto& [key, number] : field->items()) {
      if (!number.is_number_integer()) return fail();
      value[key] = number;
    }
  }
  void read(const char* name, std::vector<std::string>& value) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return fail();
    for (const Json& item : *field) {
      if (!item.is_string()) return fail();
      value.push_back(item);
    }
  }
  const Json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  void fail() { good_ = false; }
  bool good() const { return good_; }

 private:
  const Json& object_;
  bool good_ = true;
};

bool read(Fields& fields, StepEvent& event) {
  fields.read("consumer", event.consumer);
  fields.read("step", event.step);
  fields.read("cursor", event.cursor);
  fields.read("loss", event.loss);
  fields.read("accept_len", event.accept_len);
  fields.read("learning_rate", event.learning_rate);
  return fields.good();
}

bool read(Fields& fields, CheckpointEvent& event) {
  fields.read("consumer", event.consumer);
  fields.read("step", event.step);
  fields.read("path", event.path);
  return fields.good();
}

bool read(Fields& fields, StateEvent& event) {
  fields.read("text", event.text);
  return fields.good();
}

bool read(Fields& fields, SnapshotEvent& event) {
  fields.read("status", event.status);
  fields.read("fail_reason", event.fail_reason);
  fields.read("total_samples", event.total_samples);
  fields.read("drained", event.drained);
  fields.read("entries", event.entries);
  fields.read("counters", event.counters);
  fields.read("stuck", event.stuck);
  const Json* consumers = fields.find("consumers");
  if (consumers == nullptr) return fields.good();
  if (!consumers->is_array()) return false;
  for (const Json& item : *consumers) {
    if (!item.is_object()) return false;
    Fields one(item);
    ConsumerCounts& counts = event.consumers.emplace_back();
    one.read("consumer_id", counts.id);
    one.read("state", counts.state);
    one.read("failure", counts.failure);
    one.read("cursor", counts.cursor);
    one.read("step", counts.step);
    one.read("lag", counts.lag);
    if (!one.good()) return false;
  }
  return fields.good();
}

template <class E>
std::optional<Event> read_as(const Json& object) {
  E event;
  Fields fields(object);
  if (!read(fields, event)) return std::nullopt;
  return event;
}

Json json_of(const StepEvent& event) {
  return {{"event", "step"},
          {"consumer", event.consumer},
          {"step", event.step},
          {"cursor", event.cursor},
          {"loss", event.loss},
          {"accept_len", event.accept_len},
          {"learning_rate", event.learning_rate}};
}

Json json_of(const CheckpointEvent& event) {
  return {{"event", "checkpoint"}, {"consumer", event.consumer}, {"step", event.step}, {"path", event.path}};
}

Json json_of(const StateEvent& event) { return {{"event", "state"}, {"text", event.text}}; }

Json json_of(const SnapshotEvent& event) {
  Json consumers = Json::array();
  for (const ConsumerCounts& counts : event.consumers) {
    consumers.push_back({{"consumer_id", counts.id},
                         {"state", counts.state},
                         {"failure", counts.failure},
                         {"cursor", counts.cursor},
                         {"step", counts.step},
                         {"lag", counts.lag}});
  }
  return {{"event", "snapshot"},
          {"status", event.status},
          {"fail_reason", event.fail_reason},
          {"total_samples", event.total_samples},
          {"drained", event.drained},
          {"consumers", consumers},
          {"entries", event.entries},
          {"counters", event.counters},
          {"stuck", event.stuck}};
}

}  // namespace

std::string to_line(const Event& event) {
  return std::visit([](const auto& one) { return json_of(one); }, event)
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Event> parse_event(std::string_view line) {
  // Most lines are log text: only those that begin like an event are parsed.
  if (line.empty() || line.front() != '{' || line.size() > kMaxLine) return std::nullopt;
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("event") || !object["event"].is_string()) return std::nullopt;
  const std::string name = object["event"];
  if (name == "step") return read_as<StepEvent>(object);
  if (name == "checkpoint") return read_as<CheckpointEvent>(object);
  if (name == "state") return read_as<StateEvent>(object);
  if (name == "snapshot") return read_as<SnapshotEvent>(object);
  return std::nullopt;
}

}  // namespace levada::up
