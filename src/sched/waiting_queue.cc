#include "sched/waiting_queue.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace levada::sched {
namespace {
constexpr std::int32_t kMaxSorted = 128;
}  // namespace

void WaitingQueue::remove(const RequestState& state) {
  const auto it = std::find(states_.begin(), states_.end(), &state);
  if (it != states_.end()) states_.erase(it);
}

void WaitingQueue::order_by_prefix(const std::function<std::int32_t(const RequestState&)>& cached_tokens) {
  if (size() < 2 || size() > kMaxSorted) return;
  const auto fresh = std::find_if(states_.begin(), states_.end(), [](auto* state) { return state->retractions == 0; });
  std::vector<std::pair<std::int32_t, RequestState*>> ranked;
  for (auto it = fresh; it != states_.end(); ++it) ranked.emplace_back(cached_tokens(**it), *it);
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->arrival < b.second->arrival;
  });
  std::transform(ranked.begin(), ranked.end(), fresh, [](const auto& entry) { return entry.second; });
}

}  // namespace levada::sched
