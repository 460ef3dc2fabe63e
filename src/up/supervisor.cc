#include "up/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace levada::up {

using recipe::RoleKind;

namespace {

constexpr int kTickMs = 50;
constexpr double kProbeEvery = 0.2;
constexpr double kStatusEvery = 1;
constexpr double kDrainAfter = 0.5;
constexpr double kFailedPatience = 10;

std::string how_it_ended(int code) {
  if (code > 128) return " was killed by signal " + std::to_string(code - 128);
  return " ended with code " + std::to_string(code);
}

}  // namespace

struct Supervisor::Role {
  const recipe::Command* command = nullptr;
  std::optional<ChildProcess> child;
  std::optional<RoleOutput> output;
  std::int64_t restarts = 0;
  std::optional<int> code;  // of a role that ended for good
  bool ready = false;       // a service that answered
  bool again = false;       // it was started again since and has not answered yet

  bool ended() const { return code.has_value(); }
  bool running() const { return child && child->running(); }
  const std::string& label() const { return command->label; }
};

Supervisor::Supervisor(const recipe::LaunchPlan& plan, SupervisorOptions options, SupervisorHooks hooks,
                       const Clock& clock, StopSignals& signals, View& view, RunState& state)
    : plan_(plan),
      options_(options),
      hooks_(std::move(hooks)),
      clock_(clock),
      signals_(signals),
      view_(view),
      state_(state),
      started_s_(static_cast<double>(clock.now_us()) / 1e6) {
  for (const auto* commands : {&plan.services, &plan.commands}) {
    for (const recipe::Command& command : *commands) {
      roles_.push_back(std::make_unique<Role>());
      roles_.back()->command = &command;
    }
  }
}

Supervisor::~Supervisor() = default;

int Supervisor::run() {
  const bool done = start_services() == Verdict::kGoOn &&
                    (!options_.train || (start_commands() == Verdict::kGoOn && watch_until_done() == Verdict::kGoOn));
  if (done && !options_.exit_when_done && !plan_.services.empty()) serve_until_signal();
  const std::string end = state_.phase;
  take_down();
  state_.phase = end;
  return signal_;
}

Status Supervisor::start(Role& role) {
  if (!role.output) {
    LEVADA_ASSIGN_OR_RETURN(role.output, RoleOutput::open(role.command->log_path));
  }
  std::vector<std::string> argv = role.command->argv;
  if (role.restarts == 0) argv.insert(argv.end(), role.command->first_argv.begin(), role.command->first_argv.end());
  LEVADA_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(argv, role.command->env));
  role.child.emplace(std::move(child));
  state_.set_role(role.label(), role.command->kind == RoleKind::kService ? "starting" : "running");
  return {};
}

Supervisor::Verdict Supervisor::start_services() {
  for (const auto& role : roles_) {
    if (role->command->kind != RoleKind::kService) continue;
    if (const Status started = start(*role); !started.ok()) {
      fail(role->label() + " did not start: " + started.message());
      return Verdict::kStop;
    }
    view_.say("starting " + role->label() + ", log " + role->command->log_path);
  }
  double next_probe_s = 0;
  for (;;) {
    bool all_ready = true;
    for (const auto& role : roles_) {
      const recipe::Command& command = *role->command;
      if (command.kind != RoleKind::kService || role->ready) continue;
      if (now_s() >= next_probe_s) role->ready = command.health_url.empty() || hooks_.healthy(command.health_url);
      if (role->ready) {
        state_.set_role(role->label(), "ready");
        view_.say(role->label() + " is ready: " + command.health_url.substr(0, command.health_url.rfind('/') + 1));
      } else if (now_s() - started_s_ > command.startup_timeout_s) {
        fail(role->label() + " was not ready within " + std::to_string(static_cast<int>(command.startup_timeout_s)) +
             " s; see " + command.log_path);
        return Verdict::kStop;
      }
      all_ready = all_ready && role->ready;
    }
    if (all_ready) return Verdict::kGoOn;
    if (now_s() >= next_probe_s) next_probe_s = now_s() + kProbeEvery;
    if (pump() == Verdict::kStop) return Verdict::kStop;
  }
}

Supervisor::Verdict Supervisor::start_commands() {
  state_.phase = "training";
  for (const auto& role : roles_) {
    if (role->command->kind == RoleKind::kService) continue;
    if (const Status started = start(*role); !started.ok()) {
      fail(role->label() + " did not start: " + started.message());
      return Verdict::kStop;
    }
  }
  return Verdict::kGoOn;
}

Supervisor::Verdict Supervisor::watch_until_done() {
  while (!all_ended(RoleKind::kConsumer) || !all_ended(RoleKind::kProducer)) {
    if (pump() == Verdict::kStop || check_patience() == Verdict::kStop) return Verdict::kStop;
  }
  show();
  state_.phase = "done";
  return Verdict::kGoOn;
}

Supervisor::Verdict Supervisor::serve_until_signal() {
  if (options_.train && hooks_.done) hooks_.done(state_);
  state_.phase = "serving";
  view_.say("serving goes on; Ctrl-C stops");
  while (pump() == Verdict::kGoOn) {
  }
  return Verdict::kStop;
}

// Once only one side is left it should end by itself soon: consumers because the registry is gone, the producer because
// its registry drains.
Supervisor::Verdict Supervisor::check_patience() {
  const bool any = std::any_of(roles_.begin(), roles_.end(),
                               [](const auto& role) { return role->command->kind == RoleKind::kConsumer; });
  if (!any) return Verdict::kGoOn;  // of a flywheel, whose trainers are its rounds': nobody waits for anybody
  const bool consumers = all_ended(RoleKind::kConsumer), producer = all_ended(RoleKind::kProducer);
  if (consumers == producer) return Verdict::kGoOn;
  if (!waiting_since_s_) waiting_since_s_ = now_s();
  const double waited_s = now_s() - *waiting_since_s_;
  if (consumers && !drain_asked_ && waited_s > kDrainAfter) {
    drain_asked_ = true;
    if (hooks_.drain) hooks_.drain();
  }
  // A run that has failed has nothing to finish, only to clear away.
  if (waited_s < std::min(options_.patience_s, state_.run_status() == "failed" ? kFailedPatience : options_.patience_s))
    return Verdict::kGoOn;
  fail(std::string(consumers ? "the producer" : "a consumer") + " did not end although nothing is left for it to do");
  return Verdict::kStop;
}

Supervisor::Verdict Supervisor::pump() {
  std::vector<pollfd> waits{{signals_.descriptor(), POLLIN, 0}};
  for (const auto& role : roles_) {
    if (role->child && role->child->output() >= 0) waits.push_back({role->child->output(), POLLIN, 0});
  }
  ::poll(waits.data(), waits.size(), kTickMs);
  while (const std::optional<int> signal = signals_.take()) {
    if (going_down_ || signal_ != 0) continue;
    signal_ = *signal;
    view_.say("signal " + std::to_string(*signal) + ": stopping");
  }
  move_output();
  Verdict verdict = Verdict::kGoOn;
  for (const auto& role : roles_) {
    if (!role->running()) continue;
    const std::optional<int> code = role->child->poll();
    if (!code) continue;
    move_output();  // its last words
    role->child->close_output();
    if (going_down_) {
      role->code = *code;
      state_.set_role(role->label(), "stopped");
    } else if (judge(*role, *code) == Verdict::kStop) {
      verdict = Verdict::kStop;
    }
  }
  if (!going_down_) look_at_restarted();
  show();
  return signal_ != 0 ? Verdict::kStop : verdict;
}

void Supervisor::move_output() {
  for (const auto& role : roles_) {
    if (!role->child || role->child->output() < 0) continue;
    const bool open =
        role->output->drain(role->child->output(), [&](const Event& event) { state_.apply(role->label(), event); });
    if (!open) role->child->close_output();
  }
}

Supervisor::Verdict Supervisor::judge(Role& role, int code) {
  switch (role.command->kind) {
    case RoleKind::kService: return judge_service(role, code);
    case RoleKind::kProducer: return judge_producer(role, code);
    case RoleKind::kConsumer: return judge_consumer(role, code);
  }
  return Verdict::kStop;
}

// What a role that was killed said last is no reason.
std::string Supervisor::last_words(const Role& role, int code) {
  const std::string words = code > 128 ? "" : ": " + role.output->tail();
  return how_it_ended(code) + "; see " + role.command->log_path + words;
}

// A service has no good end before the run's.
Supervisor::Verdict Supervisor::judge_service(Role& role, int code) {
  if (role.ready && try_restart(role, code)) return Verdict::kGoOn;
  role.code = code;
  state_.set_role(role.label(), "failed");
  fail(role.label() + last_words(role, code));
  return Verdict::kStop;
}

Supervisor::Verdict Supervisor::judge_producer(Role& role, int code) {
  if (code != 0 && try_restart(role, code)) return Verdict::kGoOn;
  role.code = code;
  state_.set_role(role.label(), code == 0 ? "ended" : "failed");
  if (code == 0) return Verdict::kGoOn;
  fail("the producer" + last_words(role, code));
  return Verdict::kStop;
}

Supervisor::Verdict Supervisor::judge_consumer(Role& role, int code) {
  if (code != 0 && try_restart(role, code)) return Verdict::kGoOn;
  role.code = code;
  state_.set_role(role.label(), code == 0 ? "ended" : "failed");
  if (code == 0) return Verdict::kGoOn;
  fail("consumer " + role.label() + last_words(role, code));
  return plan_.abort_on_consumer_failure ? Verdict::kStop : Verdict::kGoOn;
}

bool Supervisor::try_restart(Role& role, int code) {
  if (role.restarts >= plan_.max_restarts) return false;
  ++role.restarts;
  state_.count_restart(role.label());
  view_.say(role.label() + how_it_ended(code) + "; starting it again");
  role.again = role.ready;
  return start(role).ok();
}

void Supervisor::look_at_restarted() {
  if (now_s() < next_look_s_) return;
  next_look_s_ = now_s() + kProbeEvery;
  for (const auto& role : roles_) {
    const std::string& url = role->command->health_url;
    if (!role->again || !role->running() || (!url.empty() && !hooks_.healthy(url))) continue;
    role->again = false;
    state_.set_role(role->label(), "ready");
    view_.say(role->label() + " is ready again");
  }
}

// The first reason is the one that counts; what follows from it is not told as a second failure.
void Supervisor::fail(const std::string& why) {
  if (state_.failure.empty()) state_.failure = why;
  view_.say(why);
}

void Supervisor::take_down() {
  going_down_ = true;
  state_.phase = "stopping";
  for (const RoleKind kind : {RoleKind::kConsumer, RoleKind::kProducer, RoleKind::kService}) take_down(kind);
  for (const std::string& socket : plan_.sockets) {
    // A service that was killed could not remove its own.
    unlink(socket.c_str());
  }
}

void Supervisor::take_down(RoleKind kind) {
  const auto each = [&](auto act) {
    for (const auto& role : roles_) {
      if (role->command->kind == kind && role->running()) act(*role);
    }
  };
  const auto any = [&] {
    return std::any_of(roles_.begin(), roles_.end(),
                       [&](const auto& role) { return role->command->kind == kind && role->running(); });
  };
  each([](Role& role) { role.child->signal_group(SIGTERM); });
  const double until_s = now_s() + plan_.shutdown_grace_s;
  while (any() && now_s() < until_s) pump();
  each([&](Role& role) {
    state_.leftovers.push_back(role.label() + " (killed after " +
                               std::to_string(static_cast<int>(plan_.shutdown_grace_s)) + " s)");
    role.child->signal_group(SIGKILL);
  });
  while (any()) pump();
}

void Supervisor::show() {
  // How long the run took, not how long its server went on.
  if (state_.phase == "starting" || state_.phase == "training") state_.seconds = now_s() - started_s_;
  view_.show(state_);
  if (!hooks_.changed || now_s() - last_change_s_ < kStatusEvery) return;
  last_change_s_ = now_s();
  hooks_.changed(state_);
}

bool Supervisor::all_ended(RoleKind kind) const {
  return std::all_of(roles_.begin(), roles_.end(),
                     [&](const auto& role) { return role->command->kind != kind || role->ended(); });
}

}  // namespace levada::up
