// What: BareEpoll, the least that can answer HTTP on one thread: epoll, read, write, ready-made bytes, nothing else. What a
// server costs beyond it is the server's own.
// Owner: the HTTP bench.
// Thread: its own; the constructor and the destructor are the caller's.
// Invariant: a read is a whole request, as from KeepBusy. GET /hello: one short answer; /sse: events, one write each, one after
// the other; /sse8: eight of them to a write; /turns: one write each, all open streams in turn. The kernel joins writes that follow
// each other on one socket, so /turns is what a server can reach whose streams get their tokens step by step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/thread.h"
#include "bench/cpu_clock.h"

namespace levada::bench {

class BareEpoll {
 public:
  // A stream is `event`, `events` times, each a chunk. REQUIRES: eight divides it.
  BareEpoll(std::string_view event, int events);
  ~BareEpoll();

  std::uint16_t port() const { return port_; }
  // Of its thread so far.
  double cpu_us() const { return clock_.now_us(); }

 private:
  void run();
  // False once the client has left.
  bool serve(int client);
  void take_turn();

  struct Stream {
    int client;
    int events_left;
  };

  std::string one_, eight_;  // chunks to a write
  const int events_;
  Fd listener_, wake_, epoll_;
  std::uint16_t port_ = 0;
  std::vector<Stream> streams_;  // of /turns
  CpuClock clock_;
  Thread thread_;
};

}  // namespace levada::bench
