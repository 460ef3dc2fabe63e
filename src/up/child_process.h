// What: ChildProcess, one role of a run as a process in a session of its own, its output in a pipe.
// Owner: the supervisor. Dropping one that runs kills its whole group.
// Thread: one at a time; start() from the thread that lives as long as the child (the kernel signals it when that ends).
// Invariant: nothing of the group outlives the leader: when the leader has ended, what it left is killed before the leader
// is reaped, so that the group's id cannot be anyone else's by then. A launcher killed outright takes its children along.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "recipe/launch_plan.h"

namespace levada::up {

class ChildProcess {
 public:
  // Standard input is empty; output and errors go to output(). kUnavailable if it cannot be started, with the reason.
  static Result<ChildProcess> start(const std::vector<std::string>& argv, const std::vector<recipe::EnvEntry>& env);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // The pipe's reading end, non-blocking.
  int output() const { return output_.get(); }
  // Closes it: the child will say no more.
  void close_output() { output_.reset(); }
  // To every process of the group; does nothing once the leader is reaped.
  void signal_group(int signal) const;
  // The exit code, or 128 + the signal that ended it, once it has ended; nothing while it runs. Sweeps its group.
  std::optional<int> poll();
  bool running() const { return pid_ > 0 && !code_; }

 private:
  ChildProcess(pid_t pid, Fd output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_ = -1;
  Fd output_;
  std::optional<int> code_;
};

}  // namespace levada::up
