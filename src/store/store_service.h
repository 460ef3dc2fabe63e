// What: StoreService, a whole store in one process: the arena, the server in front of it, and their figures.
// Owner: whoever composes the capture server; slots and views of the arena must end before it.
// Thread: update_metrics() from any, the rest from the owner's.
// Invariant: clients are served from start() to the destructor, which ends connections first and the memory last.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "store/arena.h"
#include "store/control_server.h"
#include "store/options.h"
#include "store/store_server.h"

namespace levada::store {

class StoreService {
 public:
  // What the keys of a run's objects begin with; for store_orphan_grace_s.
  using KeysOfRun = std::function<std::string(std::string_view run)>;
  // Takes the memory, reads it back as others would if it is a device's, and listens; without a URL only this process
  // reaches the objects. kInvalidArgument naming the option at fault; other failures are the arena's and the servers'.
  // REQUIRES: clock and metrics outlive the service.
  static Result<std::unique_ptr<StoreService>> start(const Options& options, const std::string& token,
                                                     const Clock& clock, Metrics& metrics, KeysOfRun keys_of_run = {});

  Arena& arena() { return *arena_; }
  // Empty without that listener.
  std::string tcp_url() const { return server_ ? server_->tcp_url() : ""; }
  std::string shm_url() const { return server_ ? server_->shm_url() : ""; }
  std::string ucx_url() const { return server_ ? server_->ucx_url() : ""; }
  // What UCX chose for the clients so far; empty before the first.
  std::string ucx_transports() const { return server_ ? server_->ucx_transports() : ""; }
  // "host:port" of the control channel; empty without one.
  std::string control() const { return control_ ? control_->address() : ""; }
  // By what other processes map the memory: "memory file", …; empty if it isn't a device's.
  std::string share_kind() const;
  // Writes what arena and server have counted into levada:store_*.
  void update_metrics();

 private:
  StoreService(std::unique_ptr<device::Device> device, std::unique_ptr<Arena> arena, Metrics& metrics)
      : device_(std::move(device)), arena_(std::move(arena)), metrics_(metrics) {}
  Status listen(const Options& options, const std::string& token, KeysOfRun keys_of_run);
  void update_server_metrics();
  void set(const char* name, const char* help, std::uint64_t value);
  std::unique_ptr<device::Device> device_;  // null: the arena is in host memory
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<StoreServer> server_;  // after the arena: ends before it
  std::unique_ptr<ControlServer> control_;
  Metrics& metrics_;
};

}  // namespace levada::store
