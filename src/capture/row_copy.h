// What: RowCopy, rows of hidden states on their way into their columns of a tensor, converted to its dtype; copy_rows()
// enqueues one on the stream that computes the rows.
// Owner: Capture describes it; the function is chosen once, for the arena's device.
// Thread: the stream's.
// Invariant: everything happens in the stream's order, so the rows' memory may be overwritten by what is enqueued later.
// Conversions round to nearest, ties to even, alike on both devices.
#pragma once

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

using CopyRows = Status (*)(const RowCopy& copy, device::Stream& stream);
// kUnavailable if a GPU's part of the program is not here.
Result<CopyRows> copy_rows_on(const device::Device& device);

// On the processor, at once.
void copy_rows_now(const RowCopy& copy);

inline constexpr const char* kCaptureRows = "levada_capture_rows";
// What the module offers by that name; returns a cudaError_t.
using CaptureRows = int(const RowCopy& copy, void* stream);

}  // namespace levada::capture
