// What: warm_up(), the measured choices of a CUDA model: read from the manifest of an earlier start, or measured and kept.
// Owner: none; what is chosen lives in the Linears.
// Thread: the one that makes the model.
// Invariant: a manifest that is damaged or somebody else's is said once, ignored and replaced; no failure to read or
// write one keeps the model from starting.
#pragma once

#include "kernels/cuda/linear.h"
#include "model/cuda/cuda_layers.h"
#include "model/warmup_manifest.h"

namespace levada::model {

struct WarmupCount {
  std::size_t from_manifest = 0, measured = 0;
};

WarmupKey warmup_key(const ModelConfig& config, DType dtype, const std::string& gpu);

// For decode steps of up to `max_graph_rows` rows and for chunks of the usual sizes. `logits`: f32 [rows, vocabulary].
Result<WarmupCount> warm_up(const std::filesystem::path& folder, const WarmupKey& key, std::int32_t max_graph_rows,
                            CudaLayers& layers, kernels::cuda::Linears& linears, const device::TensorView& logits,
                            cudaStream_t stream);

}  // namespace levada::model
