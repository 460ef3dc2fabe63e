// What: SocketCollective, sums between the processes of one trainer, and bytes that rank 0 deals to the others.
// Owner: RankProcesses, which connects it (rank_processes.h).
// Thread: the trainer's; nothing runs in the background.
// Invariant: a rank that ends, however it ends, ends every other rank's call: no call waits for a process that is gone.
// After a failure every later call fails too. All traffic passes rank 0; sums are added in rank order.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "train/collective.h"

namespace levada::train {

class SocketCollective final : public Collective {
 public:
  // `peers`: connected stream sockets; at rank 0 one per other rank, in rank order, elsewhere the one to rank 0.
  SocketCollective(std::int64_t rank, std::int64_t world, std::vector<Fd> peers)
      : rank_(rank), world_(world), peers_(std::move(peers)) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t world() const override { return world_; }
  Status all_reduce_sum(std::span<float> values) override { return reduce(values); }
  Status all_reduce_sum(std::span<double> values) override { return reduce(values); }

  // Rank 0: sends `pieces`, one after the other, to `rank`, which takes them as one.
  Status give(std::int64_t rank, const std::vector<std::span<const std::byte>>& pieces);
  // Another rank: what rank 0 gave, waiting for it; nothing if rank 0 has ended instead.
  Result<std::optional<std::vector<std::byte>>> take();

 private:
  template <class T>
  Status reduce(std::span<T> values);
  template <class T>
  Status reduce_piece(std::span<T> values);
  Status agree(std::size_t bytes, std::size_t width);
  Status give_to(int fd, const std::vector<std::span<const std::byte>>& pieces, const std::string& who);
  // Closes the sockets after a failure, so that the others don't wait.
  Status kept(Status status);
  std::string name(std::size_t peer) const { return "rank " + std::to_string(rank_ == 0 ? peer + 1 : 0); }

  std::int64_t rank_, world_;
  std::vector<Fd> peers_;
  Status failed_;
};

}  // namespace levada::train
