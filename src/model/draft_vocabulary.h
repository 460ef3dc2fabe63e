// What: which of the target's tokens each row of an EAGLE-3 draft's head stands for, from the checkpoint's d2t and t2d.
// Owner: the result is a value.
// Thread: any.
// Invariant: ids lie in the target's vocabulary, each at most once, and t2d, where it is stored, marks just them.
// d2t[i] is an offset: row i is the target's i + d2t[i].
#pragma once

#include "files/tensor_source.h"
#include "model/draft_config.h"

namespace levada::model {

// Whether this tensor is read here and not as a weight.
bool is_draft_vocabulary(const std::string& name);

// kDataLoss naming the tensor. Without d2t the draft's vocabulary must be the target's.
Result<std::vector<std::int32_t>> read_draft_vocabulary(const DraftConfig& config, const files::TensorSource& source,
                                                        const std::string& file);

}  // namespace levada::model
