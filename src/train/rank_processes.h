// What: RankProcesses, the processes of one data-parallel trainer: the one that was started and those it forks.
// Owner: the command; first thing it does, while the process has a single thread.
// Thread: main.
// Invariant: rank 0 is the process that was started: it alone hears signals and speaks to anybody outside. No other rank
// outlives it: they end when its sockets close, and the kernel kills them if it is killed.
// They stay in rank 0's process group, so that whoever ends the group ends them all.
#pragma once

#include <sys/types.h>

#include <memory>

#include "train/socket_collective.h"

namespace levada::train {

class RankProcesses {
 public:
  // Returns in `world` processes, this one being rank 0. REQUIRES: world >= 1, one thread.
  static Result<RankProcesses> start(std::int64_t world);
  RankProcesses(RankProcesses&&) = default;
  RankProcesses& operator=(RankProcesses&&) = delete;
  // Rank 0: closes the sockets and waits until the others have ended.
  ~RankProcesses();

  std::int64_t rank() const { return collective_->rank(); }
  SocketCollective& collective() { return *collective_; }

 private:
  RankProcesses(std::int64_t rank, std::int64_t world, std::vector<Fd> peers, std::vector<pid_t> children);

  std::unique_ptr<SocketCollective> collective_;
  std::vector<pid_t> children_;
};

}  // namespace levada::train
