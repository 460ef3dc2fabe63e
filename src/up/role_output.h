// What: RoleOutput, what one role prints: every line to its log file, events to whoever watches.
// Owner: the supervisor, one per role.
// Thread: main.
// Invariant: bytes reach the log as they came; a line too long to be an event is logged all the same; memory is bounded.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "up/events.h"

namespace levada::up {

class RoleOutput {
 public:
  // Appends to the file, making its folder; kUnavailable if that fails.
  static Result<RoleOutput> open(const std::string& log_path);

  // Reads what the pipe holds now. False once the other end is closed.
  bool drain(int pipe, const std::function<void(const Event&)>& on_event);
  // The last lines that were no events, for a message about a role that failed.
  const std::string& tail() const { return tail_; }

 private:
  explicit RoleOutput(Fd log) : log_(std::move(log)) {}
  void take_line(std::string_view line, const std::function<void(const Event&)>& on_event);

  Fd log_;
  std::string partial_;  // of a line that has not ended
  bool overlong_ = false;
  std::string tail_;
};

}  // namespace levada::up
