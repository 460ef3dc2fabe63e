// What: RowCopy, rows of hidden states on their way into their columns of a tensor, converted to its dtype; copy_rows()
// enqueues those of a whole step on the stream that computes the rows, on a GPU in as few launches as may be.
// Owner: Capture describes them.
// Thread: the stream's.
// Invariant: everything happens in the stream's order, so the rows' memory may be overwritten by what is enqueued later.
// Conversions round to nearest, ties to even, alike on both devices.
#pragma once

#include <span>

#include "device/device.h"

namespace levada::capture {

// float32, bfloat16 or float16 on either side.
struct RowCopy {
  const void* from = nullptr;
  void* to = nullptr;
  DType from_dtype = DType::kF32, to_dtype = DType::kBF16;
  std::int64_t rows = 0, width = 0;             // elements
  std::int64_t from_stride = 0, to_stride = 0;  // elements from row to row
};

// `stream`: of the device on whose memory both sides lie. kUnavailable if a GPU's part of the program is not here.
Status copy_rows(std::span<const RowCopy> copies, device::DeviceKind kind, device::Stream& stream);

// On the processor, at once.
void copy_rows_now(const RowCopy& copy);

// What the module offers: one launch. Returns a cudaError_t.
inline constexpr std::size_t kRowCopies = 64;  // as many as a launch's parameters hold
struct RowCopies {
  RowCopy copies[kRowCopies];  // alike in both dtypes and in width
  std::int32_t count = 0;
};
inline constexpr const char* kCaptureRows = "levada_capture_rows";
using CaptureRows = int(const RowCopies& batch, void* stream);

}  // namespace levada::capture
