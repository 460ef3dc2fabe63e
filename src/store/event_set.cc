#include "store/event_set.h"

#include <sys/eventfd.h>

#include <algorithm>

namespace levada::store {
namespace {

constexpr int kEventsAtOnce = 64;
constexpr std::int64_t kLongestMs = 60'000;

}  // namespace

EventSet::EventSet()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(std::make_shared<Fd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {}

Result<std::unique_ptr<EventSet>> EventSet::create() {
  std::unique_ptr<EventSet> set(new EventSet);
  if (!set->watch(set->wake_->get(), EPOLLIN)) return unavailable("the system has no more descriptors");
  return set;
}

bool EventSet::watch(int descriptor, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = descriptor}};
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void EventSet::change(int descriptor, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = descriptor}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void EventSet::wait(std::int64_t until_us, std::int64_t now_us,
                    const std::function<void(int, std::uint32_t)>& on_event) {
  const std::int64_t left_ms = until_us == kNever ? kLongestMs : (until_us - now_us) / 1000 + 1;
  epoll_event events[kEventsAtOnce];
  const int ready = ::epoll_wait(epoll_.get(), events, kEventsAtOnce,
                                 static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, kLongestMs)));
  for (int i = 0; i < ready; ++i) {
    if (events[i].data.fd != wake_->get()) {
      on_event(events[i].data.fd, events[i].events);
      continue;
    }
    std::uint64_t count;
    [[maybe_unused]] const long got = ::read(wake_->get(), &count, sizeof count);
  }
}

std::function<void()> EventSet::waker() const {
  return [event = wake_] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const long written = ::write(event->get(), &one, sizeof one);  // full means awake already
  };
}

}  // namespace levada::store
