// What: upload(), a host array as a tensor where a training step wants it.
// Owner: the tensor.
// Thread: the trainer's.
// Invariant: the way to a device is pinned memory and a copy in the stream's order: nobody waits, and torch's allocator
// keeps the memory until the copy is done.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace levada::nn {

template <class T>
at::Tensor upload(std::span<const T> values, at::Device place) {
  const at::Tensor host =
      at::empty({static_cast<std::int64_t>(values.size())},
                at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value).pinned_memory(place.is_cuda()));
  std::copy(values.begin(), values.end(), host.template mutable_data_ptr<T>());
  return place.is_cpu() ? host : host.to(place, true);
}

}  // namespace levada::nn
