#include "consumer/buffer_pool.h"

#include <algorithm>

namespace levada::consumer {
namespace {

constexpr std::size_t kMostIdle = 64;  // as many as a window of samples has objects, and some

}  // namespace

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = other.pool_;
    memory_ = std::move(other.memory_);
    size_ = other.size_;
  }
  return *this;
}

void BufferPool::Buffer::give_back() {
  if (memory_ != nullptr) pool_->put_back(std::move(memory_));
}

Result<BufferPool::Buffer> BufferPool::take(std::size_t bytes) {
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  {
    std::lock_guard lock(mutex_);
    auto best = idle_.end();  // the smallest that is large enough, and not absurdly larger
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      const std::size_t size = (*it)->size_bytes();
      const bool fits = size >= wanted && size / 2 <= wanted;
      if (fits && (best == idle_.end() || size < (*best)->size_bytes())) best = it;
    }
    if (best != idle_.end()) {
      Buffer buffer(this, std::move(*best), bytes);
      idle_.erase(best);
      return buffer;
    }
  }
  LEVADA_ASSIGN_OR_RETURN(Memory memory,
                          place_ == Place::kDevice ? device_.allocate(wanted) : device_.allocate_pinned(wanted));
  return Buffer(this, std::move(memory), bytes);
}

void BufferPool::put_back(Memory memory) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(memory));
}

Status BufferPool::quarantine(Buffer buffer) {
  std::lock_guard lock(mutex_);
  quarantined_bytes_ += buffer.memory_->size_bytes();
  quarantined_.push_back(std::move(buffer.memory_));
  if (quarantined_bytes_ <= max_quarantined_bytes_) return {};
  return resource_exhausted(std::to_string(quarantined_bytes_) +
                            " bytes of buffers are lost to failed reads, more than max_quarantined_bytes = " +
                            std::to_string(max_quarantined_bytes_));
}

std::uint64_t BufferPool::quarantined_bytes() const {
  std::lock_guard lock(mutex_);
  return quarantined_bytes_;
}

}  // namespace levada::consumer
