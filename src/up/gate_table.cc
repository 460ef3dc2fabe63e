#include <algorithm>
#include <cstdio>

#include "up/run_state.h"

namespace levada::up {
namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char line[32];
  std::snprintf(line, sizeof line, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return line;
}

std::string number_text(const std::optional<double>& value) {
  if (!value) return "-";
  char line[32];
  std::snprintf(line, sizeof line, "%.3f", *value);
  return line;
}

std::string row(const char* name, const std::string& value) {
  char label[32];
  std::snprintf(label, sizeof label, "  %-16s", name);
  return label + value + "\n";
}

std::string of(std::int64_t part, std::int64_t whole) { return text(part) + "/" + text(whole); }

std::string seconds_text(std::int64_t ms) {
  char line[32];
  std::snprintf(line, sizeof line, "%.2f s", static_cast<double>(ms) / 1000);
  return line;
}

// Since the registry was opened last; nothing of what did not happen.
std::string timing_rows(const RunState& state) {
  std::string rows;
  const auto timed = [&](const char* name, const std::string& counter) {
    const std::int64_t count = state.counter(counter + "_count");
    if (count == 0) return;
    rows += row(name, seconds_text(state.counter(counter + "_ms_sum") / count) + " on average, at most " +
                          seconds_text(state.counter(counter + "_ms_max")));
  };
  timed("captured in", "capture_latency");
  timed("removed in", "reclaim_latency");
  const std::int64_t refs = state.counter("admission_blocked_refs_ms");
  const std::int64_t bytes = state.counter("admission_blocked_bytes_ms");
  if (refs + bytes > 0) {
    rows += row("held back", seconds_text(refs) + " by max_live_refs, " + seconds_text(bytes) + " by max_live_bytes");
  }
  return rows;
}

std::string trainer_row(const TrainerState& trainer, std::int64_t total, std::size_t width) {
  char line[512];
  std::snprintf(line, sizeof line, "  %-*s %9s %9s  %8s %8s %7s  %-11s ", static_cast<int>(width), trainer.id.c_str(),
                of(trainer.cursor, total).c_str(), of(trainer.step, trainer.planned_steps).c_str(),
                number_text(trainer.loss_first).c_str(), number_text(trainer.loss_last).c_str(),
                number_text(trainer.accept_len).c_str(), trainer.state.c_str());
  return line + (trainer.checkpoint.empty() ? std::string("-") : trainer.checkpoint) + "\n";
}

// A flywheel has no trainers of its own: its rounds are runs of theirs, and its history tells what came of them.
std::string flywheel_table(const RunState& state) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.0f s", state.seconds);
  std::string table = "flywheel " + state.run_id() + ", " + seconds + "\n";
  for (const RoleState& role : state.roles()) {
    const std::string again = role.restarts > 0 ? ", started again " + text(role.restarts) + " times" : "";
    table += row(role.label.c_str(), role.state + again);
  }
  if (!state.producer_says().empty()) table += row("now", state.producer_says());
  if (!state.failure.empty()) table += row("result", "failed: " + state.failure);
  return table;
}

}  // namespace

std::string gate_table(const RunState& state) {
  if (state.trainers().empty()) return flywheel_table(state);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", state.seconds);
  const std::int64_t recaptures = state.counter("recapture_count");
  std::string table = "run " + state.run_id() + ": " + text(state.total()) + " samples, " +
                      text(std::ssize(state.trainers())) + " consumers, " + seconds + "\n";
  table += row("captures", text(state.captures()) + " = " + text(state.captures() - recaptures) + " + " +
                               text(recaptures) + " recaptures");
  const std::int64_t skipped = state.counter("skipped_samples");
  if (skipped > 0) table += row("skipped", text(skipped) + " samples that could not be captured");
  table += row("peak live", text(state.counter("peak_live_refs")) + " of " + text(state.limits().max_live_refs) +
                                " refs, " + bytes_text(state.counter("peak_live_bytes")) + " of " +
                                bytes_text(state.limits().max_live_bytes));
  table += timing_rows(state);
  table += row("entries absent", text(state.entries("absent")) + " of " + text(state.total()));
  std::size_t width = 8;
  for (const TrainerState& trainer : state.trainers())
    width = std::max(width, std::min<std::size_t>(trainer.id.size(), 40));
  char head[256];
  std::snprintf(head, sizeof head, "  %-*s %9s %9s  %8s %8s %7s  %-11s %s\n", static_cast<int>(width), "consumer",
                "cursor", "step", "loss", "-> last", "accept", "state", "checkpoint");
  table += head;
  for (const TrainerState& trainer : state.trainers()) table += trainer_row(trainer, state.total(), width);
  std::string leftovers;
  for (const std::string& left : state.leftovers) leftovers += (leftovers.empty() ? "" : ", ") + left;
  table += row("leftovers", leftovers.empty() ? "none" : leftovers);
  table += row("result", state.ok() ? "ok" : state.failure.empty() ? "not complete" : "failed: " + state.failure);
  return table;
}

}  // namespace levada::up
