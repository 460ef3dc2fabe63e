// What: BatchCopier, copies between memories of a device, many at once with one wait, and their checksums by pieces on
// the way.
// Owner: one per thread that writes to or reads from an arena on a device; the device must outlive it.
// Thread: one at a time.
// Invariant: when a call returns, with whatever Status, nothing reads or writes the memories it was given any more.
// On a GPU a copy and its checksum are one pass over the bytes.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "store/object_store.h"

namespace levada::store {

struct Transfer {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;  // null: only the checksum is wanted
  std::uint64_t bytes = 0;
};

class BatchCopier {
 public:
  static Result<std::unique_ptr<BatchCopier>> create(device::Device& device);
  ~BatchCopier();

  // What is copied from here on waits for `ready` first, on the device: the caller isn't held up.
  Status after(const device::Event& ready) { return stream_->wait(ready); }
  // Either side of each may be host memory.
  Status copy(std::span<const Transfer> transfers);
  // piece_hash() of each. REQUIRES: memory of the device, at multiples of 8 bytes.
  Result<std::vector<std::uint64_t>> copy_measured(std::span<const Transfer> transfers) {
    begin_measured(transfers);
    return end_measured(transfers);
  }
  // The same in two halves, for a caller with something to do meanwhile. What couldn't be begun fails in the second,
  // which follows the first with the same transfers.
  void begin_measured(std::span<const Transfer> transfers);
  Result<std::vector<std::uint64_t>> end_measured(std::span<const Transfer> transfers);

 private:
  struct Gpu;  // the module's function and its buffers
  BatchCopier(device::Device& device, std::unique_ptr<device::Stream> stream);
  Status finish(Status enqueued);
  Status begin_on_gpu(std::span<const Transfer> transfers);

  device::Device& device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Gpu> gpu_;  // null on the CPU
  Status begun_;
};

}  // namespace levada::store
