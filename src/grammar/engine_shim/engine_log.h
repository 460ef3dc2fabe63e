// What: EngineWarnings, what the grammar engine said on this thread while it was alive: keywords it leaves out, mostly.
// Owner: Compiler::compile().
// Thread: the one that made it (thread-local).
// Invariant: nothing the engine says reaches stderr; what nobody listens to is dropped.
#pragma once

#include <string>
#include <vector>

namespace levada::grammar {

class EngineWarnings {
 public:
  EngineWarnings();
  ~EngineWarnings();
  EngineWarnings(const EngineWarnings&) = delete;
  EngineWarnings& operator=(const EngineWarnings&) = delete;

  const std::vector<std::string>& all() const { return all_; }
  // For the engine's log hook.
  static void add(const std::string& message);

 private:
  static thread_local EngineWarnings* active_;
  std::vector<std::string> all_;
};

}  // namespace levada::grammar
