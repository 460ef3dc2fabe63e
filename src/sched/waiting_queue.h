// What: WaitingQueue, who is admitted next: first come first served, or the longest cached prefix first (lpm).
// Owner: the Brain; it borrows the states.
// Thread: the scheduler's.
// Invariant: retracted requests stand at the head whatever the policy, so that a started answer is never starved. lpm
// may starve a prompt without any cached prefix while others keep arriving; fcfs never does.
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

  void push_back(RequestState& state) { states_.push_back(&state); }
  // For retracted requests.
  void push_front(RequestState& state) { states_.push_front(&state); }
  void pop_front() { states_.pop_front(); }
  void remove(const RequestState& state);
  // Orders by `cached_tokens`, longest first, ties in order of arrival. Does nothing on a queue so long that the
  // look-ups would cost more than they save.
  void order_by_prefix(const std::function<std::int32_t(const RequestState&)>& cached_tokens);

 private:
  std::deque<RequestState*> states_;
};

}  // namespace levada::sched
