#include "bench/keep_busy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <string_view>
#include <utility>

#include "base/check.h"

namespace levada::bench {

KeepBusy::KeepBusy(std::uint16_t port, std::string request, std::string last_bytes)
    : request_(std::move(request)),
      last_bytes_(std::move(last_bytes)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      tails_(kConnections),
      buffer_(256 << 10) {
  for (std::uint32_t i = 0; i < kConnections; ++i) {
    sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1, fd = sockets_.back().get();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    LEVADA_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "loopback refused us");
    epoll_event event{.events = EPOLLIN, .data = {.u32 = i}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

int KeepBusy::run(int count) {
  int begun = 0, done = 0;
  for (; begun < kConnections; ++begun) begin(static_cast<std::uint32_t>(begun));
  while (done < begun) {
    epoll_event events[kConnections];
    const int ready = ::epoll_wait(epoll_.get(), events, kConnections, 10'000);
    LEVADA_CHECK(ready > 0, "the server under test hangs");
    for (int i = 0; i < ready; ++i) {
      if (!receive(events[i].data.u32)) continue;
      ++done;
      if (begun < count) {
        begin(events[i].data.u32);
        ++begun;
      }
    }
  }
  return done;
}

void KeepBusy::begin(std::uint32_t index) {
  const long sent = ::send(sockets_[index].get(), request_.data(), request_.size(), MSG_NOSIGNAL);
  LEVADA_CHECK(sent == static_cast<long>(request_.size()), "a short request was not taken whole");
}

bool KeepBusy::receive(std::uint32_t index) {
  const long got = ::recv(sockets_[index].get(), buffer_.data(), buffer_.size(), 0);
  LEVADA_CHECK(got > 0, "the server under test closed");
  const std::string_view fresh(buffer_.data(), static_cast<std::size_t>(got));
  std::string& tail = tails_[index];
  tail += fresh.substr(fresh.size() - std::min(fresh.size(), last_bytes_.size()));
  if (!tail.ends_with(last_bytes_)) {
    tail.erase(0, tail.size() - std::min(tail.size(), last_bytes_.size()));
    return false;
  }
  tail.clear();
  return true;
}

std::string get_request(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n"; }

std::string post_request(const std::string& path, const std::string& json) {
  return "POST " + path + " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(json.size()) + "\r\n\r\n" + json;
}

}  // namespace levada::bench
