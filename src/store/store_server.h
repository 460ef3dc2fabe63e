// What: StoreServer, one arena made reachable: over TCP for other machines, over a Unix socket for mapping readers.
// Owner: the capture process, beside its Arena, which must outlive it.
// Thread: its own, one for all clients; start(), stop() and stats() from any.
// Invariant: no client can hurt another: garbage, silence, slowness or a hang-up ends that connection alone, and
// everything it held is given back then.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/thread.h"
#include "store/acceptor.h"
#include "store/event_set.h"
#include "store/server_connection.h"

namespace levada::store {

class StoreServer {
 public:
  // Listens and serves once it returns. kInvalidArgument for a bad URL, no URL at all or TCP without a token;
  // kUnavailable if an address is taken.
  static Result<std::unique_ptr<StoreServer>> start(Arena& arena, const ServerOptions& options);
  ~StoreServer();

  // Closes all connections and listeners and removes the socket file. Again it does nothing.
  void stop();
  // What clients open, with the port that was taken; empty without that listener.
  const std::string& tcp_url() const { return tcp_url_; }
  const std::string& shm_url() const { return shm_url_; }
  const std::string& ucx_url() const { return ucx_url_; }
  // What UCX chose for the clients so far; empty before the first.
  std::string ucx_transports() const { return ucx_ ? ucx_->desk->transports() : ""; }
  const StoreServerStats& stats() const { return stats_; }

 private:
  struct Listener {
    Fd socket;
    bool shares_memory;
    const ServerUcx* ucx;  // null but at the ucx:// address
  };
  struct Client {
    std::unique_ptr<ServerConnection> connection;
    std::uint32_t interest = 0;
  };

  StoreServer(Arena& arena, const ServerOptions& options);
  Status listen(const std::string& url, std::string& bound_url);
  Status open_ucx(const Fd& listener);
  void run();
  void on_event(int descriptor, std::uint32_t events);
  void accept_from(const Listener& listener);
  void serve_waiting();
  void serve_deadlines();
  void settle(int descriptor, bool alive);
  std::int64_t next_turn_us(std::int64_t now_us) const;

  Arena& arena_;
  const ServerOptions options_;
  std::string tcp_url_, shm_url_, ucx_url_;
  StoreServerStats stats_;
  std::optional<ServerUcx> ucx_;
  std::vector<Listener> listeners_;
  std::unique_ptr<EventSet> events_;  // its waker is the arena's listener, which can't be taken back
  Acceptor acceptor_;
  std::atomic<bool> stopping_{false};
  std::map<int, Client> clients_;  // by descriptor; the server's thread
  Thread thread_;
};

}  // namespace levada::store
