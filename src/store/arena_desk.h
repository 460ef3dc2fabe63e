// What: ArenaDesk, what an arena's UcxPort asks: which bytes a lease is for, which place a ticket has.
// Owner: StoreServer, together with the port.
// Thread: place(), withdraw(), transports() from the server's, the rest from the port's.
// Invariant: a place belongs to one connection and one put: it is given back when that connection ends, when its time is over
// or when the bytes don't arrive. While UCX writes into it, it stays until UCX has let go.
//
//   place() ─> waiting ──begin_write()──> receiving ──end_write()──> sealed, or given back
//                 └──time over, withdraw()──> given back
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "store/arena.h"
#include "store/server_options.h"
#include "store/ucx_module.h"

namespace levada::store {

class ArenaDesk final : public UcxDesk {
 public:
  ArenaDesk(Arena& arena, StoreServerStats& stats) : arena_(arena), stats_(stats) {}

  // The ticket for the bytes of `slot`, which have `time_us` to arrive. kResourceExhausted without memory for them.
  Result<std::uint64_t> place(Slot slot, std::optional<std::uint64_t> checksum, std::int64_t time_us,
                              const void* connection);
  void withdraw(const void* connection);
  // Of all clients so far: "cma/memory posix/memory, tcp/eth0".
  std::string transports() const;

  Result<Reading> begin_read(std::uint64_t lease) override;
  Result<std::span<std::byte>> begin_write(std::uint64_t ticket, std::uint64_t bytes) override;
  Result<ObjectInfo> end_write(std::uint64_t ticket, const Status& arrived) override;
  bool still_reads(std::uint64_t lease) override { return arena_.is_leased(lease); }
  bool still_writes(std::uint64_t ticket) override;
  void sweep() override;
  void on_transports(const std::string& transports) override;

 private:
  struct Place {
    Slot slot;
    std::optional<std::uint64_t> checksum;
    std::int64_t deadline_us;
    const void* connection;               // null: it has ended
    std::unique_ptr<std::byte[]> staged;  // where the arena is on a device
    bool receiving = false;
  };
  using Places = std::map<std::uint64_t, Place>;
  // What nobody will bring any more; taken out here, let go of by the caller without the lock.
  std::vector<Places::node_type> take_stale_locked();

  Arena& arena_;
  StoreServerStats& stats_;
  mutable std::mutex mutex_;
  Places places_;
  std::uint64_t next_ticket_ = 1;
  std::set<std::string> transports_;
};

// A server's way over UCX; the port ends before the desk.
struct ServerUcx {
  std::unique_ptr<ArenaDesk> desk;
  std::unique_ptr<UcxPort> port;
};

}  // namespace levada::store
