// What: RowSink, where the layer loop leaves the hidden states that a plan's captures ask for.
// Owner: composed at start-up; the worker holds a reference.
// Thread: called on the worker's thread, between two layers of a step; must not wait.
// Invariant: rows travel with their range (law 1). A request's ranges come in order and without gaps, from token 0 on;
// after a retraction they start at 0 again and repeat the same values.
#pragma once

#include <span>

#include "core/capture.h"
#include "core/token_range.h"
#include "device/device.h"
#include "device/tensor_view.h"

namespace levada::capture {

// A state that is not a layer's output: the last layer's after the final norm.
inline constexpr std::int32_t kFinalNorm = -1;

// Rows of one capture: [range.count, hidden_size].
struct CapturedRows {
  core::CaptureId id{};
  core::TokenRange range;
  device::TensorView rows;
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // `state`: a layer (its output) or kFinalNorm. `rows`: [range.count, hidden_size] f32 in host memory, the caller's
  // again on return.
  virtual void on_rows(core::CaptureId id, const core::TokenRange& range, std::int32_t state,
                       const device::TensorView& rows) = 0;

  // Whether rows are to be left where this device computed them; else the caller brings them to the host.
  virtual bool takes_rows_of(const device::Device&) const { return false; }
  // As on_rows(), for all captures of a step that want `state`, with rows of any float dtype in memory of the arena's
  // device, ready in the order of `stream`, on which their copies are enqueued: what the caller enqueues there later may
  // overwrite them. All rows of one capture come on the same stream. Does not wait. REQUIRES: takes_rows_of() that device.
  virtual void on_device_rows(std::int32_t, std::span<const CapturedRows>, device::Stream&) {
    LEVADA_CHECK(false, "this sink takes rows of the host");
  }
};

}  // namespace levada::capture
