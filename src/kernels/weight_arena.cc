#include "kernels/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace levada::kernels {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20, kLine = 64;
// Pages that nobody touches take no memory.
constexpr std::size_t kChunk = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

std::shared_ptr<std::byte> WeightArena::take(std::size_t bytes) {
  const std::size_t wanted = round_up(std::max(bytes, kLine), kLine);
  if (wanted > size_ - used_) {
    const std::size_t size = round_up(std::max(wanted, kChunk), kLargePage);
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kLargePage, size));
    if (memory == nullptr) throw std::bad_alloc();
    (void)madvise(memory, size, MADV_HUGEPAGE);  // a wish
    chunk_.reset(memory, [](std::byte* p) { std::free(p); });
    used_ = 0;
    size_ = size;
  }
  const std::shared_ptr<std::byte> taken(chunk_, chunk_.get() + used_);
  used_ += wanted;
  return taken;
}

}  // namespace levada::kernels
