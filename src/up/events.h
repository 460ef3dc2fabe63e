// What: Event, what a role of a run tells the launcher: one line of JSON on its standard output per event.
// Owner: values.
// Thread: any.
// Invariant: parse_event(to_line(e)) gives e back; any other line is no event and goes to the role's log only.
// Format: {"event": NAME, …}, the names and fields below; docs/recipes.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace levada::up {

// "step": an optimizer step of a trainer was acknowledged.
struct StepEvent {
  std::string consumer;
  std::int64_t step = 0, cursor = 0;
  double loss = 0, accept_len = 0, learning_rate = 0;
};

// "checkpoint": it is durable at `path`.
struct CheckpointEvent {
  std::string consumer;
  std::int64_t step = 0;
  std::string path;
};

// "state": what a role is busy with, for people.
struct StateEvent {
  std::string text;
};

struct ConsumerCounts {
  std::string id, state, failure;
  std::int64_t cursor = 0, step = 0, lag = 0;
};

// "snapshot": the registry's own view; its last one is the run's result.
struct SnapshotEvent {
  std::string status, fail_reason;
  std::int64_t total_samples = 0;
  bool drained = false;
  std::vector<ConsumerCounts> consumers;
  std::map<std::string, std::int64_t> entries;   // state -> how many
  std::map<std::string, std::int64_t> counters;  // capture_count, peak_live_refs, …
  std::vector<std::string> stuck;                // objects that could not be removed
};

using Event = std::variant<StepEvent, CheckpointEvent, StateEvent, SnapshotEvent>;

// One line without its newline.
std::string to_line(const Event& event);
// Nothing for a line that is no event: text, other JSON, wrong types, not finite numbers.
std::optional<Event> parse_event(std::string_view line);

}  // namespace levada::up
