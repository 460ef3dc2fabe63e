// What: DraftLoader, a draft's weights as the CPU computes with them, read from its source.
// Owner: the loading of one draft.
// Thread: any.
// Invariant: a rough draft's matrices are Q8_0 (bfloat16 where a row is no multiple of 32), others float32; vectors are
// float32. Throws what torch throws.
#pragma once

#include <initializer_list>
#include <utility>

#include "model/draft_source.h"
#include "nn/backend.h"

namespace levada::model {

class DraftLoader {
 public:
  using Parts = std::initializer_list<std::pair<DraftWeight, std::int64_t>>;  // weights and their rows
  DraftLoader(const DraftSource& source, bool rough) : source_(source), rough_(rough) {}

  // The rows of several weights, one behind the other.
  nn::Projection matrix(Parts parts, std::int64_t columns, std::int64_t layer);
  at::Tensor vector(Parts parts, std::int64_t layer);
  // f32 [positions, head_dim]
  at::Tensor cos_sin(std::int64_t positions);
  std::int64_t bytes() const { return bytes_; }

 private:
  at::Tensor joined(Parts parts, std::vector<std::int64_t> row, DType type, std::int64_t layer);

  const DraftSource& source_;
  const bool rough_;
  std::int64_t bytes_ = 0;
};

}  // namespace levada::model
