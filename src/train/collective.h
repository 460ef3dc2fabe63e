// What: Collective, the one thing data-parallel trainers need of each other: sums.
// Owner: the process; trainers borrow it.
// Thread: the trainer's.
// Invariant: every rank makes the same calls in the same order with the same counts, and every rank gets the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace levada::train {

class Collective {
 public:
  virtual ~Collective() = default;
  virtual std::int64_t rank() const = 0;
  virtual std::int64_t world() const = 0;
  // values[i] becomes the sum over ranks, added in rank order. kUnavailable when a peer is gone.
  virtual Status all_reduce_sum(std::span<float> values) = 0;
  virtual Status all_reduce_sum(std::span<double> values) = 0;
};

}  // namespace levada::train
