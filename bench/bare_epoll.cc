#include "bench/bare_epoll.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstdio>
#include <future>
#include <map>

#include "base/check.h"

namespace levada::bench {
namespace {

constexpr std::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"hello\":\"world\"}";
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kStreamEnd = "0\r\n\r\n";

// A blocking socket: what is measured never fills it for long.
void write_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const long sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void watch(int epoll, int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

}  // namespace

BareEpoll::BareEpoll(std::string_view event, int events)
    : events_(events),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  LEVADA_CHECK(events % 8 == 0, "whole writes of eight");
  char length[32];
  std::snprintf(length, sizeof length, "%zx\r\n", event.size());
  one_ = length + std::string(event) + "\r\n";
  for (int i = 0; i < 8; ++i) eight_ += one_;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  LEVADA_CHECK(::bind(listener_.get(), generic, size) == 0 && ::listen(listener_.get(), 64) == 0 &&
                   ::getsockname(listener_.get(), generic, &size) == 0,
               "no loopback port");
  port_ = ntohs(address.sin_port);
  watch(epoll_.get(), listener_.get());
  watch(epoll_.get(), wake_.get());
  std::promise<CpuClock> clock;
  thread_ = Thread("bare-epoll", [this, &clock] {
    clock.set_value(CpuClock::of_this_thread());
    run();
  });
  clock_ = clock.get_future().get();
}

BareEpoll::~BareEpoll() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void BareEpoll::run() {
  std::map<int, Fd> clients;
  for (;;) {
    epoll_event ready[64];
    const int count = ::epoll_wait(epoll_.get(), ready, 64, streams_.empty() ? -1 : 0);
    for (int i = 0; i < count; ++i) {
      const int descriptor = ready[i].data.fd;
      if (descriptor == wake_.get()) return;
      if (descriptor != listener_.get()) {
        if (!serve(descriptor)) clients.erase(descriptor);
        continue;
      }
      Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const int on = 1;
      setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      watch(epoll_.get(), client.get());
      clients.emplace(client.get(), std::move(client));
    }
    take_turn();
  }
}

void BareEpoll::take_turn() {
  for (Stream& stream : streams_) {
    write_all(stream.client, one_);
    if (--stream.events_left == 0) write_all(stream.client, kStreamEnd);
  }
  std::erase_if(streams_, [](const Stream& stream) { return stream.events_left == 0; });
}

bool BareEpoll::serve(int client) {
  char request[4096];
  const long got = ::recv(client, request, sizeof request, 0);
  if (got <= 0) return false;
  const std::string_view asked(request, static_cast<std::size_t>(got));
  if (asked.starts_with("GET /hello")) {
    write_all(client, kAnswer);
    return true;
  }
  write_all(client, kStreamHead);
  if (asked.starts_with("GET /turns")) {
    streams_.push_back({client, events_});
    return true;
  }
  const bool coalesced = asked.starts_with("GET /sse8");
  for (int i = 0; i < events_; i += coalesced ? 8 : 1) write_all(client, coalesced ? eight_ : one_);
  write_all(client, kStreamEnd);
  return true;
}

}  // namespace levada::bench
