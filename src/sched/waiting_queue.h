// What: WaitingQueue, who is admitted next: the highest priority, there first come first served, or the longest cached
// prefix first (lpm).
// Owner: the Brain; it borrows the states.
// Thread: the scheduler's.
// Invariant: retracted requests stand at the head of their priority whatever the policy, so that a started answer is
// starved by higher priorities alone. lpm may starve a prompt without any cached prefix while others keep arriving.
#pragma once

#include <deque>
#include <functional>

#include "sched/request_state.h"

namespace levada::sched {

class WaitingQueue {
 public:
  bool empty() const { return states_.empty(); }
  std::int32_t size() const { return static_cast<std::int32_t>(states_.size()); }
  RequestState& front() const { return *states_.front(); }

  // Behind all of its priority and of higher ones.
  void push_back(RequestState& state);
  // Before all of its priority: retracted requests, and those that have waited for another's prompt.
  void push_front(RequestState& state);
  void pop_front() { states_.pop_front(); }
  void remove(const RequestState& state);
  // Orders by `cached_tokens`, longest first, ties in order of arrival. Does nothing on a queue so long that the
  // look-ups would cost more than they save.
  void order_by_prefix(const std::function<std::int32_t(const RequestState&)>& cached_tokens);

 private:
  std::deque<RequestState*> states_;
};

}  // namespace levada::sched
