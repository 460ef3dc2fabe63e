// What: Supervisor, runs a launch plan: services, then consumers, then the producer; watches; takes everything down again.
// Owner: `levada up`.
// Thread: main; it polls pipes and signals and never blocks for longer than a health probe.
// Invariant: when run() returns nothing it started is left: no process of any role's group, no socket of the plan. Stops go
// consumers, producer, services; each group gets SIGTERM, the grace, then SIGKILL. Signals during that are ignored.
//
//   services start -> all healthy -> consumers, producer start -> all of them ended -> [serving until a signal] -> down
//        |                |                    |
//        +----------------+--------------------+--- a signal, a service's or the producer's death, a consumer's under
//                                                   abort_all, a start that takes too long -> down
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "up/child_process.h"
#include "up/role_output.h"
#include "up/run_state.h"
#include "up/stop_signals.h"
#include "up/view.h"

namespace levada::up {

struct SupervisorHooks {
  std::function<bool(const std::string& url)> healthy;  // one probe, quick to fail
  // The trainers have gone and some did not end well: the registry should drain. May fail.
  std::function<void()> drain;
  std::function<void(const RunState&)> changed;  // about once a second: for the status file
  std::function<void(const RunState&)> done;     // all trained and drained, before serving goes on
};

struct SupervisorOptions {
  bool train = true;           // false: services only
  bool exit_when_done = true;  // false: services go on until a signal
  double patience_s = 60;      // for a role to end by itself once nothing is left for it to do
};

class Supervisor {
 public:
  // Everything given must outlive it. `state` names the roles and trainers already.
  Supervisor(const recipe::LaunchPlan& plan, SupervisorOptions options, SupervisorHooks hooks, const Clock& clock,
             StopSignals& signals, View& view, RunState& state);
  ~Supervisor();

  // The signal that ended it, or 0. Why a run failed stands in the state.
  int run();

 private:
  struct Role;
  enum class Verdict { kGoOn, kStop };

  Status start(Role& role);
  Verdict start_services();
  Verdict start_commands();
  Verdict watch_until_done();
  Verdict serve_until_signal();
  // Waits a little, moves output, reaps, and judges what ended.
  Verdict pump();
  Verdict judge(Role& role, int code);
  Verdict judge_service(Role& role, int code);
  Verdict judge_producer(Role& role, int code);
  Verdict judge_consumer(Role& role, int code);
  static std::string last_words(const Role& role, int code);
  bool try_restart(Role& role, int code);
  // Services that were started again: which of them answer?
  void look_at_restarted();
  void move_output();
  void fail(const std::string& why);
  Verdict check_patience();
  void take_down();
  void take_down(recipe::RoleKind kind);
  void show();
  bool all_ended(recipe::RoleKind kind) const;
  double now_s() const { return static_cast<double>(clock_.now_us()) / 1e6; }

  const recipe::LaunchPlan& plan_;
  const SupervisorOptions options_;
  const SupervisorHooks hooks_;
  const Clock& clock_;
  StopSignals& signals_;
  View& view_;
  RunState& state_;
  std::vector<std::unique_ptr<Role>> roles_;
  const double started_s_;
  double next_look_s_ = 0;
  std::optional<double> waiting_since_s_;  // for roles that have nothing left to do
  bool drain_asked_ = false;
  bool going_down_ = false;
  double last_change_s_ = -1;
  int signal_ = 0;
};

}  // namespace levada::up
