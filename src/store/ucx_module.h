// What: what liblevada_ucx.so can do: UcxPort, the server's end of transfers over UCX, and UcxLink, a client's.
// Owner: a port belongs to the StoreServer, a link to the UcxStore of one connection; the module stays loaded.
// Thread: a port has its own, on which it calls its desk; calls of one link must not overlap.
// Invariant: a peer is answered only if it shows the port's secret, and names leases and tickets, never addresses. Nothing
// waits for ever: a link asks `go_on` while it waits, a port its desk. What a peer does ends that peer's transfers alone.
// UCX's own protocol is not hardened, so that its ports belong on a trusted network. Format: docs/formats/store.md.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "store/object_store.h"

namespace levada::store {

using UcxSecret = std::array<std::uint64_t, 2>;

// Where a port listens, or a link connects to: a numeric address with its port.
struct UcxAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
  // Of this machine alone: then UCX uses no other network device.
  bool is_loopback() const;
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
};

// What peers of a port may have. Its methods are called on the port's thread.
class UcxDesk {
 public:
  virtual ~UcxDesk() = default;
  struct Reading {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> hold;  // keeps the memory; null: it outlives the port
  };
  // What the lease is for. kNotFound once it has ended.
  virtual Result<Reading> begin_read(std::uint64_t lease) = 0;
  // The place of a put that got this ticket; it stays until end_write(). kNotFound if there is none, or not of that size.
  virtual Result<std::span<std::byte>> begin_write(std::uint64_t ticket, std::uint64_t bytes) = 0;
  // Makes the object readable if its bytes arrived, else gives the place back.
  virtual Result<ObjectInfo> end_write(std::uint64_t ticket, const Status& arrived) = 0;
  // False once the transfer under way is to be given up: the client has gone or its time is over.
  virtual bool still_reads(std::uint64_t lease) = 0;
  virtual bool still_writes(std::uint64_t ticket) = 0;
  // Called about once a second: what has waited too long may go.
  virtual void sweep() = 0;
  // What UCX chose for a peer, as it names it: "cma/memory posix/memory", "tcp/eth0".
  virtual void on_transports(const std::string& transports) = 0;
};

class UcxPort {
 public:
  virtual ~UcxPort() = default;
  virtual std::uint16_t port() const = 0;
  virtual const UcxSecret& secret() const = 0;
};

class UcxLink {
 public:
  // Asked every few milliseconds; false ends the call, with a Status of kUnavailable.
  using GoOn = std::function<bool()>;
  virtual ~UcxLink() = default;
  // Fills `to` with the bytes of a lease. After a failure of the way (broken()) nothing writes to `to` any more.
  virtual Status read(std::uint64_t lease, std::span<std::byte> to, const GoOn& go_on) = 0;
  virtual Result<ObjectInfo> write(std::uint64_t ticket, std::span<const std::byte> from, const GoOn& go_on) = 0;
  // The way is gone, not only the wish refused: of no more use.
  virtual bool broken() const = 0;
  virtual std::string transports() const = 0;
};

struct UcxPortOptions {
  const Clock& clock;
  UcxAddress address;           // port 0 takes a free one
  std::span<std::byte> memory;  // registered once for all; may be empty
  std::size_t most_peers = 256;
};

// kFailedPrecondition where levada was built without UCX or the machine lacks its libraries. The desk outlives the port.
Result<std::unique_ptr<UcxPort>> open_ucx_port(const UcxPortOptions& options, UcxDesk& desk);
// Connected; kUnavailable if nobody answers while `go_on`.
Result<std::unique_ptr<UcxLink>> open_ucx_link(const UcxAddress& address, const UcxSecret& secret,
                                               const UcxLink::GoOn& go_on);
bool ucx_is_there();

// True if the bytes of such transports go over plain TCP between machines: neither RDMA nor shared memory.
bool falls_back_to_tcp(std::string_view transports);

// The module's two symbols.
inline constexpr const char* kOpenUcxPort = "levada_open_ucx_port";
inline constexpr const char* kOpenUcxLink = "levada_open_ucx_link";
using OpenUcxPort = void(const UcxPortOptions&, UcxDesk&, Result<std::unique_ptr<UcxPort>>*);
using OpenUcxLink = void(const UcxAddress&, const UcxSecret&, const UcxLink::GoOn&, Result<std::unique_ptr<UcxLink>>*);

}  // namespace levada::store
