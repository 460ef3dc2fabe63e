// What: ClientChannel, a client's one connection to a store's server: a request, its reply, and a new connection when the
// old one has died.
// Owner: the RemoteStore or ShmStore over it.
// Thread: any; calls take turns.
// Invariant: after any failure in the middle of a message the connection is closed, so that no later call meets the
// rest of it. A failed call writes to its destination no more. Nothing waits longer than the time limit.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "device/device.h"
#include "store/endpoint.h"
#include "store/frame.h"

namespace levada::store {

struct ClientOptions {
  std::int64_t timeout_us = 30'000'000;  // of one call, without the time a put may wait for space
  device::Device* device = nullptr;      // of nvlink:// stores, which map their objects there; outlives the
                                         // client; null: the bytes come through the socket
};

class ClientChannel {
 public:
  struct Request {
    Op op;
    std::string_view text = {};
    std::span<const std::byte> body = {};
    std::uint8_t flags = 0;
    std::uint64_t first = 0, second = 0, third = 0;
    std::uint64_t incarnation = 0;
    std::int64_t wait_us = 0;  // that the server may take before it reads on
  };
  struct Reply {
    Frame frame;
    Status status;            // the server's verdict
    bool sent_again = false;  // the connection broke once; the first attempt may have been carried out
  };
  // Called with the hello's reply and the descriptors that came with it, for every new connection.
  using OnConnected = std::function<Status(const Frame& hello, std::vector<Fd> descriptors)>;

  ClientChannel(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock,
                OnConnected on_connected);

  // Connects unless connected. kUnavailable, kUnauthenticated, or what on_connected says.
  Status connect();
  // One exchange. A get's body fills `destination` and is exactly as long. If the connection turns out dead it is made
  // anew and the request sent once more. A Status of its own means that there is no reply.
  Result<Reply> call(const Request& request, std::span<std::byte> destination = {});
  // Several exchanges at once, none with a body: all requests go out before the first reply is read. A Status of its own
  // means that some may have been carried out.
  Result<std::vector<Reply>> call_all(std::span<const Request> requests);
  // Sends a message that has no reply; a failure shows in the next call.
  void tell(Op op, std::uint64_t first = 0);
  // Closes the connection if the server has; no wait, one system call.
  bool alive();
  // Closes the connection, and so ends all that the server holds for it.
  void hang_up();
  // Of the server, as connected; without a length if not connected.
  sockaddr_storage peer(socklen_t& length) const;

  std::uint64_t incarnation() const;
  std::uint64_t capacity_bytes() const;
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  enum class Outcome { kDone, kBroken, kTimedOut };
  Status connect_locked();
  Result<Frame> exchange_hello(const Fd& socket, std::vector<Fd>& descriptors);
  Outcome attempt(const Request& request, std::span<std::byte> destination, Frame& reply, std::string& text);
  Outcome receive_reply(const Frame& request, std::span<std::byte> destination, Frame& reply, std::string& text);
  Outcome send_all(const Fd& socket, std::span<const std::byte> head, std::span<const std::byte> body);
  Outcome receive_all(const Fd& socket, std::span<std::byte> to);
  Status lost(Outcome outcome);

  const Endpoint endpoint_;
  const std::string token_;
  const ClientOptions options_;
  const Clock& clock_;
  const OnConnected on_connected_;

  mutable std::mutex mutex_;
  Fd socket_;
  std::uint32_t next_id_ = 1;
  std::int64_t deadline_us_ = 0;  // of the call that has its turn
  Frame hello_;                   // the server's last
};

}  // namespace levada::store
