// What: make_fused_draft_ops(), DraftOps over FusedKernels.
// Owner: the trainer.
// Thread: the trainer's.
// Invariant: the kernels run where the tensors are: the reference ones on the CPU (tests), the module's on CUDA.
#pragma once

#include <memory>

#include "nn/draft_ops.h"
#include "trainkernels/fused.h"

namespace levada::nn {

std::unique_ptr<DraftOps> make_fused_draft_ops(std::unique_ptr<trainkernels::FusedKernels> kernels, at::Device place);

}  // namespace levada::nn
