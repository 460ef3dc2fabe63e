// What: Endpoint, where a store listens ("tcp://host:port", "ucx://host:port", "shm:///path/of/socket",
// "nvlink:///path/of/socket"), and the sockets to and at it.
// Owner: value type; sockets belong to whoever gets the Fd.
// Thread: any.
// Invariant: nothing here blocks for ever: connecting has a time limit, listening sockets don't block.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace levada::store {

struct Endpoint {
  // kNvlink: as kShm, the bytes are a device's. kUcx: as kTcp, larger objects travel over UCX (ucx_store.h).
  enum class Kind : std::uint8_t { kTcp, kUcx, kShm, kNvlink };
  Kind kind = Kind::kTcp;
  std::string host;  // kTcp, kUcx: a name or a numeric address; IPv6 in the URL stands in brackets
  std::uint16_t port = 0;
  std::string path;                                                              // kShm, kNvlink: an absolute path
  bool is_local() const { return kind == Kind::kShm || kind == Kind::kNvlink; }  // a Unix socket
  std::string url() const;
};

// kInvalidArgument naming what is wrong.
Result<Endpoint> parse_endpoint(std::string_view url);

// A connected, blocking socket without delay of small writes. kUnavailable naming the endpoint if nobody listens there
// or nobody answers within `timeout_us`.
Result<Fd> connect_to(const Endpoint& endpoint, std::int64_t timeout_us);

// A socket that listens and doesn't block. Port 0 takes a free one (bound_port()). A socket file that nobody listens at
// is replaced; kUnavailable if somebody does, or if the address is taken.
Result<Fd> listen_at(const Endpoint& endpoint);
std::uint16_t bound_port(const Fd& socket);

// Both directions wait at most this long per call; for blocking sockets.
void set_timeouts(const Fd& socket, std::int64_t timeout_us);

// On a TCP connection within this machine: buffers that fit a processor's cache, which is half as fast again. Between
// machines the system's own tuning knows better.
void tune_on_loopback(const Fd& socket);

}  // namespace levada::store
