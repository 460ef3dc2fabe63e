// What: RunState, everything the launcher knows about a run: its roles, what the registry counts, how each trainer fares.
// Owner: the supervisor; views read it.
// Thread: one at a time.
// Invariant: it only repeats what roles said; ok() is true of a run that kept every promise of the gate.
// Format: summary_json() is `--summary`, status_json() is control_dir/up.json; docs/recipes.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "recipe/launch_plan.h"
#include "up/events.h"

namespace levada::up {

struct TrainerState {
  std::string id;
  std::int64_t planned_steps = 0;
  std::string state = "waiting";
  std::int64_t cursor = 0, step = 0, lag = 0;
  std::optional<double> loss_first, loss_last, accept_len;
  std::string checkpoint, failure;
  std::int64_t checkpoint_step = 0;
};

struct RoleState {
  std::string label;
  recipe::RoleKind kind = recipe::RoleKind::kService;
  std::string state = "waiting";  // starting, ready, running, ended, failed, stopped
  std::int64_t restarts = 0;
};

struct Limits {
  std::int64_t max_live_refs = 0, max_live_bytes = 0;
};

class RunState {
 public:
  // Before anything has started.
  RunState() = default;
  RunState(std::string run_id, std::int64_t total_samples, Limits limits);

  void add_role(const std::string& label, recipe::RoleKind kind);
  void add_trainer(const std::string& id, std::int64_t planned_steps);
  // `role` said it.
  void apply(const std::string& role, const Event& event);
  void set_role(const std::string& label, const std::string& state);
  void count_restart(const std::string& label);

  const std::string& run_id() const { return run_id_; }
  const std::vector<RoleState>& roles() const { return roles_; }
  const std::vector<TrainerState>& trainers() const { return trainers_; }
  const Limits& limits() const { return limits_; }
  std::int64_t total() const { return total_; }
  std::int64_t counter(const std::string& name) const;
  std::int64_t entries(const std::string& state) const;
  std::int64_t captures() const { return counter("capture_count"); }
  const std::string& run_status() const { return snapshot_.status; }
  // What the producer said last while it had not captured anything: it is answering prompts.
  const std::string& producer_says() const { return producer_says_; }

  std::string phase = "starting";      // starting, training, done, serving, stopping; completed, failed, stopped
  std::string failure;                 // why the run ended, if it was no good end
  std::vector<std::string> leftovers;  // processes, sockets and objects that had to be swept or are still there
  double seconds = 0;

  // Every trainer completed with its last checkpoint, every entry absent, nothing over a limit, nothing left.
  bool ok() const;

 private:
  TrainerState* find_trainer(const std::string& id);

  std::string run_id_;
  std::int64_t total_ = 0;
  Limits limits_;
  std::vector<RoleState> roles_;
  std::vector<TrainerState> trainers_;
  SnapshotEvent snapshot_;
  std::string producer_says_;
};

// house.md §8: {ok, captures, recaptures, skipped, peak_live_refs, peak_live_bytes, entries_absent, entries_total, consumers, seconds}
std::string summary_json(const RunState& state);
// The gate as a table, for people.
std::string gate_table(const RunState& state);
// What `levada status` reads; `pid` is the launcher's.
std::string status_json(const RunState& state, std::int64_t pid);

// What a status file says.
struct StatusFile {
  std::int64_t pid = 0;
  std::string phase;
  std::string text;  // the gate table as it was when the file was written
  std::string summary;
};
// kDataLoss if `text` is no such file.
Result<StatusFile> parse_status(std::string_view text, const std::string& name);

}  // namespace levada::up
