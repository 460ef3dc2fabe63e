// What: the border between at::Tensor and the rest: views, types, and exceptions turned into Statuses.
// Owner: views and wrapped tensors own nothing; the memory behind them must outlive their use.
// Thread: any.
// Invariant: no torch exception leaves a room that uses nn; each edge runs its torch code inside guarded().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <exception>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::nn {

at::ScalarType scalar_type(DType dtype);
DType dtype_of(const at::Tensor& tensor);

// A window on the tensor, strides kept; at most four dimensions.
device::TensorView view(const at::Tensor& tensor);
// The other way round: a tensor on foreign memory. `index` is the device's.
at::Tensor wrap(const device::TensorView& view, int index = 0);

// A torch exception as a Status: kResourceExhausted for memory, kInternal otherwise, with the first line of its text.
Status to_status(const std::exception& failure, const char* doing);

// Runs `body` without gradients; whatever torch throws becomes a Status.
template <class Body>
Status guarded(const char* doing, Body&& body) {
  try {
    c10::InferenceMode inference;
    std::forward<Body>(body)();
    return {};
  } catch (const std::exception& failure) {
    return to_status(failure, doing);
  }
}

// Loads libtorch_cuda.so from beside libtorch_cpu.so, once, so that operators on CUDA tensors exist.
// kUnavailable with the reason and the remedy.
Status load_torch_cuda();

}  // namespace levada::nn
