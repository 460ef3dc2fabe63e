// What: StoreService, a whole store in one process: the arena, the server in front of it, and their figures.
// Owner: whoever composes the capture server; slots and views of the arena must end before it.
// Thread: update_metrics() from any, the rest from the owner's.
// Invariant: clients are served from start() to the destructor, which ends connections first and the memory last.
#pragma once

#include <memory>
#include <string>

#include "base/metrics.h"
#include "store/arena.h"
#include "store/options.h"
#include "store/store_server.h"

namespace levada::store {

class StoreService {
 public:
  // Takes the memory and listens; without a URL only this process reaches the objects. Failures are the arena's and the
  // server's. REQUIRES: options.arena_bytes > 0; clock and metrics outlive the service.
  static Result<std::unique_ptr<StoreService>> start(const Options& options, const std::string& token,
                                                     const Clock& clock, Metrics& metrics);

  Arena& arena() { return *arena_; }
  // Empty without that listener.
  std::string tcp_url() const { return server_ ? server_->tcp_url() : ""; }
  std::string shm_url() const { return server_ ? server_->shm_url() : ""; }
  std::string ucx_url() const { return server_ ? server_->ucx_url() : ""; }
  // What UCX chose for the clients so far; empty before the first.
  std::string ucx_transports() const { return server_ ? server_->ucx_transports() : ""; }
  // Writes what arena and server have counted into levada:store_*.
  void update_metrics();

 private:
  StoreService(std::unique_ptr<device::Device> device, std::unique_ptr<Arena> arena, Metrics& metrics)
      : device_(std::move(device)), arena_(std::move(arena)), metrics_(metrics) {}
  std::unique_ptr<device::Device> device_;  // null: the arena is in host memory
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<StoreServer> server_;  // after the arena: ends before it
  Metrics& metrics_;
};

}  // namespace levada::store
