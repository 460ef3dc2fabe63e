// What: Capture, one sample being filled: a slot of the arena per tensor, and which rows have come.
// Owner: the Publisher.
// Thread: write() and note_copied() on the worker's; seal() on the Publisher's, after the last write.
// Invariant: a tensor is [1, tokens, width] row-major; each state has its own columns; rows beyond `tokens` (lookahead
// computes one) are not kept. complete() is true only when every state has every row.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "capture/publisher.h"
#include "capture/row_copy.h"

namespace levada::capture {

class Capture {
 public:
  // Slots in the order of states: one per feature, then one per passthrough tensor.
  Capture(core::CaptureId id, SampleSpec spec, std::int32_t tokens, std::int32_t hidden_size,
          std::vector<store::Slot> slots);
  // The slots are of `arena`; copies of rows that are on their way into them happen first.
  ~Capture();
  // Writes the passthrough tensors, and prepares for rows of a device if the arena is on one.
  Status begin(store::Arena& arena);

  core::CaptureId id() const { return id_; }
  const SampleSpec& spec() const { return spec_; }

  // Rows [range.first, range.end()) of `state`: f32 [count, hidden_size].
  void write(const core::TokenRange& range, std::int32_t state, const device::TensorView& rows);
  // One copy for each column of `state`, without the rows beyond the sample.
  std::vector<RowCopy> copies_of(const core::TokenRange& range, std::int32_t state,
                                 const device::TensorView& rows) const;
  // Those copies are enqueued on the arena's device, and `written`, which other captures may share, is recorded behind
  // them; or `copied` says why not, which shows in complete().
  void note_copied(const core::TokenRange& range, std::int32_t state, Status copied,
                   std::shared_ptr<device::Event> written);
  // What the last row's copy is followed by; null if none came through note_copied().
  std::shared_ptr<device::Event> written() const;
  // The features' bytes, in order, to be measured on the arena's device.
  std::vector<std::span<const std::byte>> features() const;
  // kInternal naming the state and the rows it lacks, or what a copy failed with.
  Status complete() const;
  // Seals every tensor. `measured`: the features' checksums if the arena is on a device; else they are hashed here. On
  // failure those sealed before are for the caller to remove.
  Result<Published> seal(std::uint64_t incarnation, std::span<const std::uint64_t> measured = {});

 private:
  struct Column {
    std::size_t feature;
    std::int64_t offset_elements;
  };
  std::int64_t width_elements(const FeatureSpec& feature) const;
  Status prepare_for_host_rows();
  void note_rows(const core::TokenRange& range, std::int32_t state, Status copied);

  const core::CaptureId id_;
  const SampleSpec spec_;
  const std::int32_t tokens_, hidden_size_;
  std::vector<store::Slot> slots_;
  std::map<std::int32_t, std::vector<Column>> columns_;  // by state
  store::Arena* arena_ = nullptr;
  std::unique_ptr<device::Stream> host_rows_stream_;  // to the arena's device, once rows of the host come
  mutable std::mutex mutex_;                          // the worker writes, the sealer asks
  Status copied_;
  std::shared_ptr<device::Event> written_;
  std::map<std::int32_t, std::int32_t> rows_;  // by state: rows [0, n) are there
};

}  // namespace levada::capture
