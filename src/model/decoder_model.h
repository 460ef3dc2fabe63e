// What: DecoderModel, the Model behind load_model() for llama and qwen3, whatever the device.
// Owner: the engine worker.
// Thread: the worker's.
// Invariant: at most one Forward is alive: it borrows the model's workspace.
#pragma once

#include "kernels/ops.h"
#include "kernels/thread_pool.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "model/step_geometry.h"
#include "model/weights.h"
#include "nn/gqa_layer.h"
#include "nn/lm_head.h"

namespace levada::model {

// CPU threads and kernels: they compute the model on the CPU, and sample on every device.
struct HostKernels {
  explicit HostKernels(int threads) : pool(threads), ops(kernels::make_cpu_ops(pool)) {}
  kernels::ThreadPool pool;
  std::unique_ptr<kernels::Ops> ops;
};

struct DecoderParts {
  std::unique_ptr<HostKernels> host;
  std::unique_ptr<nn::Backend> backend;
  std::unique_ptr<Checkpoint> checkpoint;
  core::ModelInfo info;
  bool as_stored = false;  // see load_weights()
  DType kv_dtype = DType::kF32;
  std::int32_t page_size_tokens = 16;
  std::optional<DraftRoom> draft_room;
};

// Loads the weights, for which there must be memory.
Result<std::unique_ptr<Model>> make_decoder_model(DecoderParts parts, device::Device& device);

}  // namespace levada::model
