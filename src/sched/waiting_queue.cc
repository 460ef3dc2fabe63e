#include "sched/waiting_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace levada::sched {
namespace {
constexpr std::int32_t kMaxSorted = 128;
}  // namespace

void WaitingQueue::push_back(RequestState& state) {
  auto at = states_.end();
  while (at != states_.begin() && (*std::prev(at))->priority < state.priority) --at;
  states_.insert(at, &state);
}

void WaitingQueue::push_front(RequestState& state) {
  states_.insert(std::find_if(states_.begin(), states_.end(), [&](auto* s) { return s->priority <= state.priority; }),
                 &state);
}

void WaitingQueue::remove(const RequestState& state) {
  const auto it = std::find(states_.begin(), states_.end(), &state);
  if (it != states_.end()) states_.erase(it);
}

void WaitingQueue::order_by_prefix(const std::function<std::int32_t(const RequestState&)>& cached_tokens) {
  if (size() < 2 || size() > kMaxSorted) return;
  struct Entry {
    std::int32_t cached;
    RequestState* state;
  };
  std::vector<Entry> ranked;
  for (RequestState* state : states_) ranked.push_back({state->retractions > 0 ? 0 : cached_tokens(*state), state});
  // Retracted ones keep their order among themselves.
  std::stable_sort(ranked.begin(), ranked.end(), [](const Entry& a, const Entry& b) {
    const bool fresh_a = a.state->retractions == 0, fresh_b = b.state->retractions == 0;
    if (a.state->priority != b.state->priority) return a.state->priority > b.state->priority;
    if (fresh_a != fresh_b) return fresh_b;
    return fresh_a && std::tuple(-a.cached, a.state->arrival) < std::tuple(-b.cached, b.state->arrival);
  });
  std::transform(ranked.begin(), ranked.end(), states_.begin(), [](const Entry& entry) { return entry.state; });
}

}  // namespace levada::sched
