// What: the tensors of a draft checkpoint by every name they are published under, with the shapes the configuration demands.
// Owner: values.
// Thread: any.
// Invariant: this list is all that a checkpoint may hold, but for an EAGLE-3 draft's d2t and t2d (draft_vocabulary.h).
// Names: docs/formats/checkpoint.md.
#pragma once

#include <string>
#include <vector>

#include "model/draft_source.h"

namespace levada::model {

struct DraftTensor {
  DraftWeight weight{};
  std::int64_t layer = 0;
  std::vector<std::string> names;  // the first is the one that messages use
  std::vector<std::int64_t> shape;
  bool required = true;
};

std::vector<DraftTensor> tensors_of(const DraftConfig& config);

}  // namespace levada::model
