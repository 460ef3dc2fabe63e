// What: the tensors behind FrozenTables.
// Owner: the FrozenTables object. Private to the room.
// Thread: any.
// Invariant: both are [vocabulary, hidden] in the demanded type, in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "train/frozen_tables.h"

namespace levada::train {

class FrozenTensors final : public FrozenTables {
 public:
  FrozenTensors(at::Tensor embedding, at::Tensor head, std::int64_t target_layers);
  std::int64_t vocabulary() const override { return embedding.size(0); }
  std::int64_t hidden() const override { return embedding.size(1); }
  std::int64_t target_layers() const override { return target_layers_; }
  bool tied() const override { return embedding.is_same(head); }
  std::string identity() const override { return identity_; }
  // Root mean square over the head's rows of their lengths: the spread of the logits of a state whose numbers have spread 1.
  // The same bits on every machine.
  double head_row_length() const;

  const at::Tensor embedding, head;

 private:
  std::int64_t target_layers_;
  std::string identity_;
};

}  // namespace levada::train
