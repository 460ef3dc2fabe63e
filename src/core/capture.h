// What: CaptureRequest, which hidden states of a request are wanted, and PlanCapture, the same wish in a step's plan.
// Owner: part of the Request, copied into each plan that computes rows of it.
// Thread: a value.
// Invariant: layer k names the output of decoder layer k, counted from 0 (the last one feeds the final norm); layers
// are ascending and each once. A captured request computes every row of its prompt: it never starts on a cached prefix.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace levada::core {

// Names one capture of this process; given out by capture::Publisher, never reused.
enum class CaptureId : std::uint64_t {};

struct CaptureRequest {
  CaptureId id{};
  std::vector<std::int32_t> layers;
  bool final_norm = false;  // the state after the final norm, too
  // Its KV may be kept as cache for others. Off: it leaves no trace in the prefix cache.
  bool fill_prefix_cache = false;
};

// All rows of one slice of the plan are captured.
struct PlanCapture {
  std::int32_t slice = 0;  // index into StepPlan::slices
  CaptureId id{};
  std::int32_t layers_first = 0, layers_count = 0;  // in StepPlan::capture_layers
  bool final_norm = false;
};

}  // namespace levada::core
