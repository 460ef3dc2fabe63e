#include "nn/tensor.h"

#include <ATen/ops/from_blob.h>

#include <new>

namespace levada::nn {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kF16: return at::kHalf;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF8E4M3: return at::kFloat8_e4m3fn;
    case DType::kI64: return at::kLong;
    case DType::kI32: return at::kInt;
    case DType::kU8: return at::kByte;
    case DType::kF64: return at::kDouble;
    case DType::kI16: return at::kShort;
    case DType::kI8: return at::kChar;
    case DType::kBool: return at::kBool;
  }
  LEVADA_CHECK(false, "every DType has a torch type");
}

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::kF32;
    case at::kHalf: return DType::kF16;
    case at::kBFloat16: return DType::kBF16;
    case at::kFloat8_e4m3fn: return DType::kF8E4M3;
    case at::kLong: return DType::kI64;
    case at::kInt: return DType::kI32;
    case at::kByte: return DType::kU8;
    case at::kDouble: return DType::kF64;
    case at::kShort: return DType::kI16;
    case at::kChar: return DType::kI8;
    case at::kBool: return DType::kBool;
    default: LEVADA_CHECK(false, "a torch type that has no DType");
  }
}

device::TensorView view(const at::Tensor& tensor) {
  LEVADA_CHECK(tensor.dim() <= device::TensorView::kMaxRank, "at most four dimensions");
  device::TensorView out;
  out.data = tensor.data_ptr();
  out.dtype = dtype_of(tensor);
  out.place = tensor.is_cuda() ? device::DeviceKind::kCuda : device::DeviceKind::kCpu;
  out.rank = static_cast<int>(tensor.dim());
  for (int d = 0; d < out.rank; ++d) {
    out.shape[static_cast<std::size_t>(d)] = tensor.size(d);
    out.strides[static_cast<std::size_t>(d)] = tensor.stride(d);
  }
  return out;
}

at::Tensor wrap(const device::TensorView& view, int index) {
  const bool cuda = view.place == device::DeviceKind::kCuda;
  const at::Device place = cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)) : at::Device(at::kCPU);
  const auto rank = static_cast<std::size_t>(view.rank);
  return at::from_blob(view.data, at::IntArrayRef(view.shape.data(), rank), at::IntArrayRef(view.strides.data(), rank),
                       at::TensorOptions().dtype(scalar_type(view.dtype)).device(place));
}

Status to_status(const std::exception& failure, const char* doing) {
  std::string reason = failure.what();
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&failure))
    reason = torch_error->what_without_backtrace();
  reason = std::string(doing) + ": " + reason.substr(0, reason.find('\n'));
  const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(&failure) != nullptr ||
                      dynamic_cast<const std::bad_alloc*>(&failure) != nullptr;
  return memory ? resource_exhausted(std::move(reason)) : internal_error(std::move(reason));
}

}  // namespace levada::nn
