#include "up/run_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/overloaded.h"

namespace levada::up {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string dumped(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

OrderedJson number_or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson summary_of(const RunState& state) {
  OrderedJson consumers = OrderedJson::array();
  for (const TrainerState& trainer : state.trainers()) {
    consumers.push_back(
        {{"id", trainer.id},
         {"cursor", trainer.cursor},
         {"step", trainer.step},
         {"checkpoint", trainer.checkpoint.empty() ? OrderedJson(nullptr) : OrderedJson(trainer.checkpoint)},
         {"loss_first", number_or_null(trainer.loss_first)},
         {"loss_last", number_or_null(trainer.loss_last)},
         {"accept_len", number_or_null(trainer.accept_len)}});
  }
  return {{"ok", state.ok()},
          {"captures", state.captures()},
          {"recaptures", state.counter("recapture_count")},
          {"skipped", state.counter("skipped_samples")},
          {"peak_live_refs", state.counter("peak_live_refs")},
          {"peak_live_bytes", state.counter("peak_live_bytes")},
          {"entries_absent", state.entries("absent")},
          {"entries_total", state.total()},
          {"consumers", consumers},
          {"seconds", state.seconds}};
}

}  // namespace

RunState::RunState(std::string run_id, std::int64_t total_samples, Limits limits)
    : run_id_(std::move(run_id)), total_(total_samples), limits_(limits) {}

void RunState::add_role(const std::string& label, recipe::RoleKind kind) {
  roles_.push_back({.label = label, .kind = kind});
}

void RunState::add_trainer(const std::string& id, std::int64_t planned_steps) {
  trainers_.push_back({.id = id, .planned_steps = planned_steps});
}

TrainerState* RunState::find_trainer(const std::string& id) {
  const auto found =
      std::find_if(trainers_.begin(), trainers_.end(), [&](const TrainerState& t) { return t.id == id; });
  return found == trainers_.end() ? nullptr : &*found;
}

void RunState::apply(const std::string& role, const Event& event) {
  std::visit(Overloaded{[&](const StepEvent& step) {
                          TrainerState* trainer = find_trainer(step.consumer);
                          if (trainer == nullptr) return;
                          if (!trainer->loss_first) trainer->loss_first = step.loss;
                          trainer->loss_last = step.loss;
                          trainer->accept_len = step.accept_len;
                          trainer->step = step.step;
                          trainer->cursor = step.cursor;
                        },
                        [&](const CheckpointEvent& checkpoint) {
                          TrainerState* trainer = find_trainer(checkpoint.consumer);
                          if (trainer == nullptr) return;
                          trainer->checkpoint = checkpoint.path;
                          trainer->checkpoint_step = checkpoint.step;
                        },
                        [&](const StateEvent& said) {
                          if (TrainerState* trainer = find_trainer(role))
                            trainer->state = said.text;
                          else
                            producer_says_ = said.text;
                        },
                        [&](const SnapshotEvent& snapshot) {
                          snapshot_ = snapshot;
                          if (snapshot.total_samples > 0) total_ = snapshot.total_samples;
                          for (const ConsumerCounts& counts : snapshot.consumers) {
                            TrainerState* trainer = find_trainer(counts.id);
                            if (trainer == nullptr) continue;
                            trainer->state = counts.state;
                            trainer->cursor = counts.cursor;
                            trainer->step = std::max(trainer->step, counts.step);
                            trainer->lag = counts.lag;
                            trainer->failure = counts.failure;
                          }
                        }},
             event);
}

void RunState::set_role(const std::string& label, const std::string& state) {
  for (RoleState& role : roles_) {
    if (role.label == label) role.state = state;
  }
}

void RunState::count_restart(const std::string& label) {
  for (RoleState& role : roles_) {
    if (role.label == label) ++role.restarts;
  }
}

std::int64_t RunState::counter(const std::string& name) const {
  const auto found = snapshot_.counters.find(name);
  return found == snapshot_.counters.end() ? 0 : found->second;
}

std::int64_t RunState::entries(const std::string& state) const {
  const auto found = snapshot_.entries.find(state);
  return found == snapshot_.entries.end() ? 0 : found->second;
}

bool RunState::ok() const {
  const bool trained = std::all_of(trainers_.begin(), trainers_.end(), [](const TrainerState& trainer) {
    return trainer.state == "completed" && trainer.step == trainer.planned_steps &&
           trainer.checkpoint_step == trainer.planned_steps;
  });
  const bool within = (limits_.max_live_refs == 0 || counter("peak_live_refs") <= limits_.max_live_refs) &&
                      (limits_.max_live_bytes == 0 || counter("peak_live_bytes") <= limits_.max_live_bytes);
  return failure.empty() && trained && within && snapshot_.drained && entries("absent") == total_ &&
         snapshot_.stuck.empty() && leftovers.empty();
}

std::string summary_json(const RunState& state) { return dumped(summary_of(state), -1); }

std::string status_json(const RunState& state, std::int64_t pid) {
  OrderedJson roles = OrderedJson::array();
  for (const RoleState& role : state.roles()) {
    roles.push_back({{"label", role.label}, {"state", role.state}, {"restarts", role.restarts}});
  }
  return dumped({{"version", 1},
                 {"pid", pid},
                 {"run_id", state.run_id()},
                 {"phase", state.phase},
                 {"failure", state.failure},
                 {"roles", roles},
                 {"summary", summary_of(state)},
                 {"table", gate_table(state)}},
                1);
}

Result<StatusFile> parse_status(std::string_view text, const std::string& name) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto fits = [&](const char* key, auto is) { return json.contains(key) && (json[key].*is)(); };
  if (!json.is_object() || !fits("pid", &OrderedJson::is_number_integer) || !fits("phase", &OrderedJson::is_string) ||
      !fits("table", &OrderedJson::is_string) || !fits("summary", &OrderedJson::is_object)) {
    return data_loss(name + " is not a status file of `levada up`");
  }
  return StatusFile{
      .pid = json["pid"], .phase = json["phase"], .text = json["table"], .summary = dumped(json["summary"], -1)};
}

}  // namespace levada::up
