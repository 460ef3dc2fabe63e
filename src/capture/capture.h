// What: Capture, one sample being filled: a slot of the arena per tensor, and which rows have come.
// Owner: the Publisher.
// Thread: write() on the worker's; seal() on the Publisher's, after the last write.
// Invariant: a tensor is [1, tokens, width] row-major; each state has its own columns; rows beyond `tokens` (lookahead
// computes one) are not kept. complete() is true only when every state has every row.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "capture/publisher.h"

namespace levada::capture {

class Capture {
 public:
  // Slots in the order of states: one per feature, then one per passthrough tensor.
  Capture(core::CaptureId id, SampleSpec spec, std::int32_t tokens, std::int32_t hidden_size,
          std::vector<store::Slot> slots);

  core::CaptureId id() const { return id_; }
  const SampleSpec& spec() const { return spec_; }

  // Rows [range.first, range.end()) of `state`: f32 [count, hidden_size].
  void write(const core::TokenRange& range, std::int32_t state, const device::TensorView& rows);
  // kInternal naming the state and the rows it lacks.
  Status complete() const;
  // Hashes and seals every tensor. On failure those sealed before are for the caller to remove.
  Result<Published> seal(std::uint64_t incarnation);

 private:
  struct Column {
    std::size_t feature;
    std::int64_t offset_elements;
  };
  std::int64_t width_elements(const FeatureSpec& feature) const;

  const core::CaptureId id_;
  const SampleSpec spec_;
  const std::int32_t tokens_, hidden_size_;
  std::vector<store::Slot> slots_;
  std::map<std::int32_t, std::vector<Column>> columns_;  // by state
  mutable std::mutex mutex_;                             // the worker writes, the sealer asks
  std::map<std::int32_t, std::int32_t> rows_;            // by state: rows [0, n) are there
};

}  // namespace levada::capture
