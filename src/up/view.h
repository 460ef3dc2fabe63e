// What: View, how a run looks to whoever started it: bars that redraw in place on a terminal, plain lines elsewhere.
// Owner: the command; the supervisor calls it.
// Thread: main.
// Invariant: what comes from roles is shown without its control characters; a line never wraps.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "up/run_state.h"

namespace levada::up {

class View {
 public:
  virtual ~View() = default;
  // Something that happened, once: "server-0 is ready".
  virtual void say(const std::string& line) = 0;
  // The state as it is now; called often.
  virtual void show(const RunState& state) = 0;
  // Leaves what stands there for good.
  virtual void finish(const RunState& state) = 0;
};

// `columns` 0: as wide as the terminal is now. `out` must outlive the view.
std::unique_ptr<View> make_terminal_view(std::FILE* out, int columns = 0);
// A line when something has changed, at most every `interval_s` seconds of the run.
std::unique_ptr<View> make_plain_view(std::FILE* out, double interval_s = 2);

// The terminal's picture of a state, `columns` wide.
std::vector<std::string> picture(const RunState& state, int columns);
// The same in one line.
std::string one_line(const RunState& state);
// Printable ASCII and UTF-8 only, cut to `columns`.
std::string shown(const std::string& text, int columns);

}  // namespace levada::up
