// What: BufferPool, memory for samples that have to be copied, used again and again.
// Owner: the SampleReader; buffers must end before their pool.
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

namespace levada::consumer {

class BufferPool {
 public:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  // Goes back to its pool when it dies, unless it was quarantined.
  class Buffer {
   public:
    Buffer(Buffer&& other) noexcept = default;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { give_back(); }
    std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

   private:
    friend class BufferPool;
    Buffer(BufferPool* pool, Memory memory, std::size_t size, std::size_t capacity)
        : pool_(pool), memory_(std::move(memory)), size_(size), capacity_(capacity) {}
    void give_back();
    BufferPool* pool_;
    Memory memory_;
    std::size_t size_, capacity_;
  };

  explicit BufferPool(std::uint64_t max_quarantined_bytes) : max_quarantined_bytes_(max_quarantined_bytes) {}

  Buffer take(std::size_t bytes);
  // kResourceExhausted naming the limit once more bytes are quarantined than it allows.
  Status quarantine(Buffer buffer);
  std::uint64_t quarantined_bytes() const;

 private:
  struct Idle {
    Memory memory;
    std::size_t capacity;
  };
  void put_back(Memory memory, std::size_t capacity);

  const std::uint64_t max_quarantined_bytes_;
  mutable std::mutex mutex_;
  std::vector<Idle> idle_;
  std::vector<Memory> quarantined_;
  std::uint64_t quarantined_bytes_ = 0;
};

}  // namespace levada::consumer
