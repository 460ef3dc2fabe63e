// What: BufferPool, memory of one device, or of the host beside it, for samples that have to be copied, used again and
// again.
// Owner: the SampleReader; buffers must end before their pool, the pool before its device.
// Thread: any.
// Invariant: the buffer of a failed read is never used again and never freed while the pool lives: a transfer that comes
// late may still write to it. Too much of that is a failure, not a leak.
// Buffers begin at a multiple of 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace levada::consumer {

class BufferPool {
 public:
  using Memory = std::unique_ptr<device::DeviceBuffer>;

  // Goes back to its pool when it dies, unless it was quarantined.
  class Buffer {
   public:
    Buffer(Buffer&& other) noexcept = default;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { give_back(); }
    std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_->data()), size_}; }

   private:
    friend class BufferPool;
    Buffer(BufferPool* pool, Memory memory, std::size_t size) : pool_(pool), memory_(std::move(memory)), size_(size) {}
    void give_back();
    BufferPool* pool_;
    Memory memory_;
    std::size_t size_;
  };

  enum class Place : std::uint8_t { kDevice, kPinned };  // kPinned: of the host, reached by the device too
  BufferPool(device::Device& device, Place place, std::uint64_t max_quarantined_bytes)
      : device_(device), place_(place), max_quarantined_bytes_(max_quarantined_bytes) {}

  // kResourceExhausted if the device has no memory left.
  Result<Buffer> take(std::size_t bytes);
  // kResourceExhausted naming the limit once more bytes are quarantined than it allows.
  Status quarantine(Buffer buffer);
  std::uint64_t quarantined_bytes() const;

 private:
  void put_back(Memory memory);

  device::Device& device_;
  const Place place_;
  const std::uint64_t max_quarantined_bytes_;
  mutable std::mutex mutex_;
  std::vector<Memory> idle_, quarantined_;
  std::uint64_t quarantined_bytes_ = 0;
};

}  // namespace levada::consumer
