// What: EventSet, the descriptors that a server's one thread waits for, and what wakes it.
// Owner: the server. Descriptors leave it by being closed.
// Thread: the server's; wake() and wakers from any.
// Invariant: a wake that comes before wait() ends it at once.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "base/fd.h"
#include "base/status.h"

namespace levada::store {

class EventSet {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // kUnavailable: the system has no more descriptors.
  static Result<std::unique_ptr<EventSet>> create();

  // EPOLLIN, EPOLLOUT, EPOLLRDHUP. False if the system watches no more.
  bool watch(int descriptor, std::uint32_t events);
  void change(int descriptor, std::uint32_t events);
  // Until something happens, is woken, or `until_us` has come. on_event(descriptor, events) may close any of them.
  void wait(std::int64_t until_us, std::int64_t now_us, const std::function<void(int, std::uint32_t)>& on_event);
  void wake() const { waker()(); }
  // May be called after the set has gone.
  std::function<void()> waker() const;

 private:
  EventSet();
  Fd epoll_;
  std::shared_ptr<const Fd> wake_;
};

}  // namespace levada::store
