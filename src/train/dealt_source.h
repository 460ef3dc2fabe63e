// What: DealtSource and TakenSource, one stream of samples for all ranks of a trainer: rank 0 reads it and deals it out.
// Owner: each rank's process; collective and inner source must outlive them.
// Thread: the trainer's.
// Invariant: of a step's samples, which rank 0 takes from its source in order, rank r trains the r-th part: together they
// train what one process with the whole step would. Only rank 0 tells the source of steps and checkpoints.
#pragma once

#include "train/sample_source.h"
#include "train/socket_collective.h"

namespace levada::train {

class DealtSource final : public SampleSource {
 public:
  // At rank 0.
  DealtSource(SampleSource& whole, SocketCollective& ranks) : whole_(whole), ranks_(ranks) {}

  Result<std::vector<Sample>> next(std::int64_t count) override;
  Status checkpointed(std::int64_t step, const std::filesystem::path& folder) override {
    return whole_.checkpointed(step, folder);
  }
  Status stepped(std::int64_t step) override { return whole_.stepped(step); }

 private:
  SampleSource& whole_;
  SocketCollective& ranks_;
};

class TakenSource final : public SampleSource {
 public:
  // At every other rank.
  explicit TakenSource(SocketCollective& ranks) : ranks_(ranks) {}

  // Empty: rank 0 has ended.
  Result<std::vector<Sample>> next(std::int64_t count) override;
  Status checkpointed(std::int64_t, const std::filesystem::path&) override { return {}; }
  Status stepped(std::int64_t) override { return {}; }

 private:
  SocketCollective& ranks_;
  std::vector<std::byte> taken_;  // what the samples of the current step lie in
};

}  // namespace levada::train
