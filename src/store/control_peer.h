// What: ControlPeer, one peer of the arena's control channel: bytes in, objects freed, answers out. No socket, no clock.
// Owner: ControlServer, one per connection; the arena, the terms and the counters outlive it.
// Thread: one.
// Invariant: what is freed and answered depends on the bytes alone, never on how they were cut into reads. After
// take() said false nothing more is freed.
//
//   lines end with a newline; empty ones are skipped
//   ["key", …]                                        frees these objects
//   {"hello":{"token":t,"run":r,"incarnation":i}}     only first: from then on every list is answered by a line
//                                                     {"freed":[..],"unknown":[..]}, and "still_read":[..] if any
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/arena.h"

namespace levada::store {

struct ControlTerms {
  std::string token;                     // what a hello must show; empty: anything
  bool plain = false;                    // with a token: whether peers without a hello may free all the same
  std::size_t max_line_bytes = 1 << 20;  // without the newline
};

struct ControlStats {
  std::atomic<std::uint64_t> accepted{0}, closed{0}, refused_full{0};
  std::atomic<std::uint64_t> bad_lines{0}, bad_tokens{0}, timeouts{0};
  std::atomic<std::uint64_t> lines{0}, freed{0}, orphans{0};
};

class ControlPeer {
 public:
  ControlPeer(Arena& arena, const ControlTerms& terms, ControlStats& stats)
      : arena_(arena), terms_(terms), stats_(stats) {}

  // False: the connection is to be closed. Complete lines before the fault have had their effect.
  bool take(std::string_view bytes);
  // Whether a line has begun and not ended.
  bool has_partial_line() const { return !partial_.empty(); }
  // That have ended so far.
  std::uint64_t lines() const { return lines_; }
  // What is to be sent; whoever sends takes it away from the front.
  std::string& answers() { return answers_; }
  const std::string& answers() const { return answers_; }
  // Of a greeted peer; else empty.
  const std::string& run() const { return run_; }

 private:
  bool take_line(std::string_view line);
  void free(const std::vector<std::string>& keys);

  Arena& arena_;
  const ControlTerms& terms_;
  ControlStats& stats_;
  std::string partial_, answers_, run_;
  std::uint64_t lines_ = 0;
  bool first_line_ = true, greeted_ = false;
  std::uint64_t incarnation_ = kAnyIncarnation;  // the life of the objects that the peer knows
};

}  // namespace levada::store
