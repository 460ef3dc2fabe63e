// What: ServerConnection, the server's end of one client: reads requests, answers them from the arena.
// Owner: StoreServer's loop; what the client holds (slot, leases, reader's slots) goes with it.
// Thread: the server's.
// Invariant: one request at a time; a peer's lengths are checked before anything is reserved by them; every state but
// an idle, greeted one has a deadline, so that no peer holds anything by being slow.
//
//   header ──put──> waiting (no space yet) ──> body ──> reply ──sent──> header
//     │  └──put refused──> drain (its body is thrown away) ──> reply
//     │  └──place (its body comes over UCX)──> reply
//     └──any other request──> reply;    garbage, time-out, hang-up in any state ──> closed
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/hash.h"
#include "store/arena.h"
#include "store/arena_desk.h"
#include "store/frame.h"
#include "store/server_options.h"

namespace levada::store {

class ServerConnection {
 public:
  // `shares_memory`: the client may map the arena (a Unix socket). `ucx`: how its objects travel over UCX; null: they don't.
  ServerConnection(Fd socket, bool shares_memory, Arena& arena, const ServerOptions& options, StoreServerStats& stats,
                   const ServerUcx* ucx = nullptr);
  ~ServerConnection();

  int descriptor() const { return socket_.get(); }
  // Each returns false once the connection is to be closed.
  bool on_readable();
  bool on_writable() { return go_on(flush()); }
  // Space may have come.
  bool on_space();
  bool on_time(std::int64_t now_us);

  bool waits_for_space() const { return state_ == State::kWaiting; }
  bool wants_to_write() const { return state_ == State::kReply; }
  bool wants_to_read() const { return !waits_for_space() && !wants_to_write(); }
  std::int64_t deadline_us() const { return deadline_us_; }

 private:
  enum class State { kHeader, kWaiting, kBody, kDrain, kReply };
  enum class Progress { kDone, kBlocked, kBroken };

  bool go_on(Progress progress);
  Progress receive();
  Progress receive_body();
  bool parse_buffered();
  void begin(const Frame& request, std::string text);
  void dispatch();
  void hello();
  void put();
  void tell_ucx_port();
  std::uint64_t value_bytes() const { return request_.op == Op::kPlace ? request_.third : request_.body_bytes; }
  void accept_body(Slot slot);
  void refuse_body(const Status& why);
  std::span<std::byte> body_place();
  bool stage(std::uint64_t bytes);
  std::span<const std::byte> sending_bytes() const;
  void take_body(std::span<const std::byte> piece);
  void finish_body();
  void get();
  void lease();
  void reply(Frame frame);
  void reply(const Status& error);
  Progress flush();
  Progress send_head();
  Progress send_object();
  void finish_reply();
  void allow_us(std::int64_t us) { deadline_us_ = arena_.clock().now_us() + us; }
  std::int64_t time_for(std::uint64_t bytes) const;

  Fd socket_;
  const bool shares_memory_;
  Arena& arena_;
  const ServerOptions& options_;
  StoreServerStats& stats_;
  const ServerUcx* const ucx_;

  State state_ = State::kHeader;
  bool greeted_ = false;
  bool close_after_reply_ = false;
  std::int64_t deadline_us_;

  std::array<std::byte, 8192> in_;
  std::size_t in_bytes_ = 0;
  Frame request_;
  std::string text_;

  std::optional<Arena::Turn> turn_;      // waiting
  std::optional<Slot> slot_;             // body
  std::unique_ptr<std::byte[]> staged_;  // body, reply: the value in host memory, where the arena is on a device
  std::optional<Hash64Stream> hash_;
  std::uint64_t body_left_ = 0;  // body, drain
  Status refusal_;               // drain: what the reply will say

  std::vector<std::byte> out_;  // reply: head and text, and a small object
  std::size_t out_sent_ = 0;
  Fd out_memory_;         // goes with the first byte, and the reader's slots with it …
  Fd out_device_memory_;  // … and an arena's that is on a device
  std::optional<ObjectView> sending_;
  std::size_t object_sent_ = 0;
  std::vector<Arena::LeaseId> leases_;
  std::optional<Arena::Reader> reader_;
};

}  // namespace levada::store
