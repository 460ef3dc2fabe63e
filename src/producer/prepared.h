// What: PreparedSample, a token sequence ready to be captured, and the rules by which one is cut or dropped.
// Owner: values.
// Thread: any.
// Invariant: what trim() accepts has equally many ids and mask entries, at most max_length of them, and two neighbouring
// supervised tokens: something can be learnt from it.
// Format: docs/formats/prompts.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levada::producer {

struct PreparedSample {
  std::string task_id;  // explicit; empty: derived from the content
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;
  bool operator==(const PreparedSample&) const = default;
};

struct SampleBounds {
  std::int64_t max_length = 2048;   // tokens; the rest is cut off
  std::int64_t max_supervised = 0;  // supervised tokens; the sample ends with the last of them. 0: any number
};

enum class TrimVerdict : std::uint8_t { kKept, kTooFewSupervised, kNoNeighbours };

// Cuts `sample` to the bounds and says whether a draft can learn from what is left. REQUIRES: ids and mask of one length.
TrimVerdict trim(PreparedSample& sample, const SampleBounds& bounds);

}  // namespace levada::producer
