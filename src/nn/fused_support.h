// What: tensors as the fused kernels take them: raw memory and an element type; their Status as torch's exceptions.
// Owner: none.
// Thread: any.
// Invariant: whoever uses it runs inside guarded(), as all of nn does.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "trainkernels/fused.h"

namespace levada::nn {

inline trainkernels::Element element_of(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat,
              "draft weights are float32 or bfloat16");
  return x.scalar_type() == at::kBFloat16 ? trainkernels::Element::kBf16 : trainkernels::Element::kFloat;
}

inline void must(const Status& status) { TORCH_CHECK(status.ok(), status.to_string()); }

// Column `column` of a matrix whose rows may be strided.
inline void* column_of(const at::Tensor& matrix, std::int64_t column) {
  return static_cast<char*>(matrix.data_ptr()) + static_cast<std::size_t>(column) * matrix.element_size();
}

}  // namespace levada::nn
