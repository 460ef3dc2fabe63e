// What: CudaModel, the Model behind --device cuda: what it holds, which graphs it has recorded, how a plan becomes a step.
// Owner: the engine worker, through the factory of liblevada_cuda.so.
// Thread: the worker's, load_draft() any.
// Invariant: one stream; every buffer that a graph knows stays where it is as long as the graph is kept. A step that no
// graph fits runs launch by launch through the same code.
// Files: cuda_model.cc makes it, cuda_steps.cc begins steps and records graphs, cuda_forward.cc runs one.
#pragma once

#include "kernels/cuda/sampling.h"
#include "model/cuda/cuda_drafter.h"
#include "model/cuda/cuda_layers.h"
#include "model/cuda/decode_graphs.h"
#include "model/cuda/result_slots.h"

namespace levada::model {

class CudaModel final : public Model {
 public:
  static constexpr std::int64_t kMaxStepRows = 16'384 + 1024;  // the largest chunk, and decode rows beside it
  static constexpr std::int64_t kMaxSamples = 1024;

  CudaModel(DecoderSource& source, const CudaModelOptions& options, device::Device& device);
  Status open(DecoderSource& source);

  const core::ModelInfo& info() const override { return info_; }
  const device::Device& device() const override { return device_; }
  const core::KvLayout& kv_layout() const override { return layout_; }
  std::string backend() const override;
  bool runs_ahead() const override { return true; }
  Status health() const override { return device_.health(); }
  std::vector<MemoryUse> memory() const override;
  Result<std::unique_ptr<KvPool>> make_kv_pool(std::int32_t pages) override;
  Result<std::shared_ptr<const Draft>> load_draft(const std::filesystem::path& folder) override;
  Result<std::unique_ptr<Forward>> begin(const core::StepPlan& plan, KvPool& pool,
                                         const std::shared_ptr<const Draft>& draft) override;

 private:
  friend class CudaForward;
  // How a step runs: through the graph of its shape or launch by launch, its rows attended by `flash` or, null, one by one.
  struct Way {
    StepShape shape;
    bool recorded = false;
    kernels::cuda::FlashAttention* flash = nullptr;
  };

  // cuda_model.cc
  Status make_flash();
  Status make_drafter();
  std::string scaling_name() const;

  // cuda_steps.cc
  Status check_limits(const core::StepPlan& plan) const;
  Result<Way> way_of(const core::StepPlan& plan, const PagedKvPool& pool);
  // The shape of a graph that can run this plan; rows 0: none can.
  StepShape graph_shape(const core::StepPlan& plan, const KvPool& pool) const;
  Status record_graphs(PagedKvPool& pool);
  // Beside the steps: the tokens of the step before stay where they are.
  Status record_late(const StepShape& shape, const PagedKvPool& pool);
  // What a graph is recorded over: padding alone, which names no token, changes no KV.
  Status send_padding(const StepShape& shape, kernels::cuda::FlashAttention* flash);
  // How to choose the step's tokens, to the device.
  Status send_sampling(const core::StepPlan& plan, std::int32_t padded_rows);

  // cuda_forward.cc: the parts of a step, recorded or not.
  Status run_step(const StepShape& shape, const PagedKvPool& pool, kernels::cuda::FlashAttention* flash);
  Status run_layer(CudaLayers& layers, int layer, const StepArrays& arrays, const StepShape& shape,
                   const PagedKvPool& pool, kernels::cuda::FlashAttention* flash);
  Status choose_tokens(CudaLayers& layers, const StepArrays& arrays, const StepShape& shape, std::int32_t samples,
                       const PagedKvPool& pool);

  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_->native_handle()); }
  device::TensorView logits_of(std::int64_t count) const {
    return device::TensorView::of(logits_->data(), DType::kF32, {count, config_.vocabulary}, device::DeviceKind::kCuda);
  }
  std::int32_t* samples() const { return static_cast<std::int32_t*>(samples_->data()); }

  const ModelConfig config_;
  const core::ModelInfo info_;
  const CudaModelOptions options_;
  device::Device& device_;
  const KvScaling scaling_;
  const core::KvLayout layout_;
  std::unique_ptr<device::Stream> stream_;
  CudaWeights weights_;
  std::unique_ptr<kernels::cuda::Linears> linears_;
  std::unique_ptr<kernels::cuda::PagedAttention> attention_;
  std::unique_ptr<kernels::cuda::FlashAttention> flash_, decode_flash_;  // null where there is no such kernel
  std::vector<std::int32_t> expanded_table_;  // 0, 1, 2 … : widened pages lie as the step names them
  std::unique_ptr<CudaLayers> eager_layers_, graph_layers_;
  StepInputs eager_inputs_, graph_inputs_;
  // f32 [kMaxSamples, V]; i32: the samples of a step, then what a draft proposes after them
  std::unique_ptr<device::DeviceBuffer> logits_, samples_;
  std::shared_ptr<ResultSlots> results_;
  std::unique_ptr<kernels::cuda::Sampler> sampler_;
  std::unique_ptr<CudaDrafter> drafter_;  // null without room for drafts
  DecodeGraphs graphs_;
  const KvPool* graph_pool_ = nullptr;
  std::int64_t graph_bytes_ = 0;  // what recording took of the device, modules loaded by it included
  std::size_t sampled_ = 0;       // by the step begun last: what plan.future_tokens may name
};

}  // namespace levada::model
