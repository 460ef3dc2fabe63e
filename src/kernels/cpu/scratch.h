// What: thread_scratch, memory a kernel needs for the length of one call.
// Owner: the calling thread.
// Thread: any; each has its own.
// Invariant: aligned to a cache line; the contents are unspecified. A second call on the same thread invalidates the
// first one's memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace levada::kernels {

inline float* thread_scratch(std::int64_t floats) {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  static thread_local std::unique_ptr<float, Free> memory;
  static thread_local std::int64_t size = 0;
  if (floats > size) {
    const std::size_t bytes = (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
    memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    LEVADA_CHECK(memory != nullptr, "out of memory for kernel scratch");
    size = floats;
  }
  return memory.get();
}

}  // namespace levada::kernels
