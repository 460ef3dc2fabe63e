// What: Scratch, named buffers that a training step reuses, so that no step after the first touches fresh memory.
// Owner: the trainer.
// Thread: the trainer's.
// Invariant: get() with a name gives the same memory again, grown when needed and never shrunk; what was in it is gone.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <string>
#include <unordered_map>

namespace levada::nn {

class Scratch {
 public:
  explicit Scratch(at::Device place) : place_(place) {}

  at::Tensor get(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
    std::int64_t count = 1;
    for (std::int64_t size : sizes) count *= size;
    at::Tensor& memory = buffers_[name];
    if (!memory.defined() || memory.numel() < count || memory.scalar_type() != type) {
      memory = at::Tensor();  // the old memory goes before the new comes
      memory = at::empty({count}, at::TensorOptions().dtype(type).device(place_));
    }
    return memory.narrow(0, 0, count).view(sizes);
  }

  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const auto& [name, memory] : buffers_) total += static_cast<std::int64_t>(memory.nbytes());
    return total;
  }

 private:
  at::Device place_;
  std::unordered_map<std::string, at::Tensor> buffers_;
};

}  // namespace levada::nn
