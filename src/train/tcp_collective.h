// What: sums between trainer processes over TCP: rank 0 adds everybody's values in rank order and sends the sums back.
// Owner: the process.
// Thread: the trainer's; nothing runs in the background.
// Invariant: no call waits longer than the timeout for a peer; after a failure every later call fails too, and the peers'
// calls fail as the connections close. A peer that makes another call than rank 0 is told apart from a lost one.
// Frames: docs/formats/collective.md. For a few ranks of one machine or a trusted network; all traffic passes rank 0.
#pragma once

#include <memory>
#include <string>

#include "train/collective.h"

namespace levada::train {

struct TcpCollectiveOptions {
  std::string host = "127.0.0.1";  // where rank 0 listens; a numeric IPv4 address
  std::uint16_t port = 0;
  std::int64_t rank = 0, world = 1;
  double timeout_seconds = 60;
  std::string token;  // shared secret: a peer without it is turned away
};

// Returns when all ranks are connected. kUnavailable when they aren't within the timeout, kInvalidArgument for options
// that can't be, kUnauthenticated at a rank that rank 0 refused.
Result<std::unique_ptr<Collective>> open_tcp_collective(const TcpCollectiveOptions& options);

}  // namespace levada::train
