// What: ControlServer, the TCP listener at which consumers free the objects of an arena (the behaviour spec's N8 to N10).
// Owner: StoreService; the arena outlives it.
// Thread: its own, which takes frees while the writer waits for space and while nothing happens; the rest from any.
// Invariant: no peer can hurt another or hold the writer up: garbage, silence within a line, slowness or a hang-up ends
// that connection alone.
// A run whose greeted peers have all gone and don't come back within `orphan_us` has its objects removed, if asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/thread.h"
#include "store/acceptor.h"
#include "store/control_peer.h"
#include "store/event_set.h"

namespace levada::store {

struct ControlOptions {
  std::string url;  // "tcp://127.0.0.1:0": its host is what replies name
  ControlTerms terms;
  std::size_t max_connections = 256;
  std::int64_t line_us = 10'000'000;  // from a line's first byte to its last, and for taking an answer in
  std::int64_t orphan_us = 0;         // 0: objects outlive their consumers
  // What the keys of a run's objects begin with. REQUIRES: set if orphan_us > 0.
  std::function<std::string(std::string_view run)> keys_of_run;
};

class ControlServer {
 public:
  // Serves once it returns. kInvalidArgument for a URL that isn't tcp:// or names no address that others could reach;
  // kUnavailable if it is taken.
  static Result<std::unique_ptr<ControlServer>> start(Arena& arena, ControlOptions options);
  ~ControlServer();

  // "host:port", with the port that was taken.
  const std::string& address() const { return address_; }
  const ControlStats& stats() const { return stats_; }

 private:
  struct Client {
    Fd socket;
    std::unique_ptr<ControlPeer> peer;
    std::int64_t deadline_us;
    std::uint32_t interest;
    std::uint64_t lines = 0;  // that had ended when the deadline was set
  };
  struct Run {
    std::size_t peers = 0;
    std::int64_t orphan_us = 0;  // when its objects go, once it has no peers
  };

  ControlServer(Arena& arena, ControlOptions options);
  Status listen();
  void run();
  void accept();
  bool on_event(Client& client, std::uint32_t events);
  bool read(Client& client);
  bool send(Client& client);
  void settle(int descriptor, bool alive);
  void close(int descriptor);
  void serve_deadlines();
  void remove_orphans(std::int64_t now_us);
  std::int64_t next_turn_us() const;

  Arena& arena_;
  const ControlOptions options_;
  std::string address_;
  ControlStats stats_;
  Fd listener_;
  std::unique_ptr<EventSet> events_;
  Acceptor acceptor_;
  std::atomic<bool> stopping_{false};
  std::map<int, Client> clients_;  // by descriptor; the server's thread
  std::map<std::string, Run, std::less<>> runs_;
  Thread thread_;
};

}  // namespace levada::store
