#include "capture/row_copy.h"

#include <cstring>

#include "device/module.h"
#include "kernels/bf16.h"

namespace levada::capture {
namespace {

float widen(float value) { return value; }
float widen(_Float16 value) { return static_cast<float>(value); }
float widen(kernels::Bf16 value) { return kernels::to_float(value); }

void narrow(float value, float& out) { out = value; }
void narrow(float value, _Float16& out) { out = static_cast<_Float16>(value); }
void narrow(float value, kernels::Bf16& out) { out = kernels::to_bf16(value); }

template <class From, class To>
void convert(const RowCopy& copy) {
  for (std::int64_t row = 0; row < copy.rows; ++row) {
    const From* from = static_cast<const From*>(copy.from) + row * copy.from_stride;
    To* to = static_cast<To*>(copy.to) + row * copy.to_stride;
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to, from, static_cast<std::size_t>(copy.width) * sizeof(To));
    } else {
      for (std::int64_t i = 0; i < copy.width; ++i) narrow(widen(from[i]), to[i]);
    }
  }
}

template <class From>
void convert_from(const RowCopy& copy) {
  switch (copy.to_dtype) {
    case DType::kF32: return convert<From, float>(copy);
    case DType::kBF16: return convert<From, kernels::Bf16>(copy);
    case DType::kF16: return convert<From, _Float16>(copy);
    default: LEVADA_CHECK(false, "check() lets only float features pass");
  }
}

// Rows that need no conversion are left to the stream, so that a late one is late here as well.
Status copy_on_processor(const RowCopy& copy, device::Stream& stream) {
  if (copy.from_dtype != copy.to_dtype) {
    LEVADA_RETURN_IF_ERROR(stream.synchronize());
    copy_rows_now(copy);
    return {};
  }
  const std::size_t element = bytes_of(copy.to_dtype);
  for (std::int64_t row = 0; row < copy.rows; ++row) {
    const auto* from =
        static_cast<const std::byte*>(copy.from) + static_cast<std::size_t>(row * copy.from_stride) * element;
    auto* to = static_cast<std::byte*>(copy.to) + static_cast<std::size_t>(row * copy.to_stride) * element;
    LEVADA_RETURN_IF_ERROR(stream.copy(to, from, static_cast<std::size_t>(copy.width) * element));
  }
  return {};
}

bool alike(const RowCopy& a, const RowCopy& b) {
  return a.from_dtype == b.from_dtype && a.to_dtype == b.to_dtype && a.width == b.width;
}

Status copy_on_gpu(std::span<const RowCopy> copies, device::Stream& stream) {
  static const Result<void*> function = device::cuda_module_symbol(kCaptureRows);
  LEVADA_RETURN_IF_ERROR(function.status());
  for (std::size_t next = 0; next < copies.size();) {
    RowCopies batch;
    const RowCopy& first = copies[next];
    while (next < copies.size() && static_cast<std::size_t>(batch.count) < kRowCopies && alike(copies[next], first))
      batch.copies[batch.count++] = copies[next++];
    const int error = reinterpret_cast<CaptureRows*>(*function)(batch, stream.native_handle());
    if (error != 0) return internal_error("CUDA: capturing rows: error " + std::to_string(error));
  }
  return {};
}

}  // namespace

void copy_rows_now(const RowCopy& copy) {
  switch (copy.from_dtype) {
    case DType::kF32: return convert_from<float>(copy);
    case DType::kBF16: return convert_from<kernels::Bf16>(copy);
    case DType::kF16: return convert_from<_Float16>(copy);
    default: LEVADA_CHECK(false, "hidden states are floats");
  }
}

Status copy_rows(std::span<const RowCopy> copies, device::DeviceKind kind, device::Stream& stream) {
  if (kind == device::DeviceKind::kCuda) return copy_on_gpu(copies, stream);
  for (const RowCopy& copy : copies) LEVADA_RETURN_IF_ERROR(copy_on_processor(copy, stream));
  return {};
}

}  // namespace levada::capture
