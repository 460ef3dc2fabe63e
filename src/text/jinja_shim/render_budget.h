// What: RenderBudget, the work a template may do on this thread; cmake/Jinja.cmake puts calls to it into the engine.
// Owner: ChatTemplate::parse() and render(), each for its own duration.
// Thread: the one that made it (thread-local).
// Invariant: once a limit is hit, every later call throws too, so that the engine's catch (...) can't swallow it for
// long; when it ends, no value made under it is left that only others of them hold. Limits: steps (statements, values, list items, recursion), live values, bytes of text copied, stack. Outside a
// budget all calls do nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace levada::text {

struct Link {
  Link *previous = this, *next = this;
};

// What the engine's values derive from: counted against the budget and listed in it while they live, so that those that
// still hold each other when nobody else does can be let go at its end.
class Listed : private Link {
 public:
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  // Hands over all references to other values.
  virtual void give_up(std::vector<std::shared_ptr<void>>& references) noexcept = 0;

 protected:
  Listed();
  virtual ~Listed();

 private:
  friend class RenderBudget;
};

// Not a std::exception: the engine catches and rewraps those.
struct RenderLimit {
  const char* what;  // "steps", ...
};

class RenderBudget {
 public:
  struct Limits {
    std::int64_t steps, live_values, bytes;
    std::ptrdiff_t stack_bytes;  // below the frame that made the budget
  };
  explicit RenderBudget(const Limits& limits);
  ~RenderBudget();
  RenderBudget(const RenderBudget&) = delete;
  RenderBudget& operator=(const RenderBudget&) = delete;

  // Each throws RenderLimit when its limit is passed.
  static void charge_steps(std::int64_t count);
  static void charge_bytes(std::size_t count);
  // One recursion of the engine: a step and a look at the stack.
  static void enter();
  // As enter(), with an eighth of the stack: for recursions whose noexcept successors go as deep with larger frames.
  static void enter_shallow();

 private:
  friend class Listed;
  static void check_stack(std::ptrdiff_t share);
  void break_cycles() noexcept;
  Limits limits_;
  std::int64_t steps_left_, values_left_, bytes_left_;
  const char* top_;
  RenderBudget* outer_;
  Link values_;  // a ring of the Listed born under this budget
};

// Whether `needle` stands in `text`, in linear time.
std::size_t find_linear(const std::string& text, const std::string& needle, std::size_t from);
// All occurrences replaced, in linear time, after charging what the result needs.
std::string replace_all(const std::string& text, const std::string& from, const std::string& to);

// Destroys nested containers without recursion: takes the children of a dying value and drops them one after the other.
template <class Value>
void bury(std::vector<Value>& items, std::vector<std::pair<Value, Value>>& pairs) noexcept {
  if (items.empty() && pairs.empty()) return;
  static thread_local std::vector<Value> graves;
  static thread_local bool digging = false;
  for (Value& item : items) graves.push_back(std::move(item));
  for (auto& [key, value] : pairs) {
    graves.push_back(std::move(key));
    graves.push_back(std::move(value));
  }
  items.clear();
  pairs.clear();
  if (digging) return;
  digging = true;
  while (!graves.empty()) {
    Value last = std::move(graves.back());
    graves.pop_back();
  }
  digging = false;
}

}  // namespace levada::text
