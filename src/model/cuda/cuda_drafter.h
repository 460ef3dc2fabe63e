// What: CudaDrafter, what a DFlash draft adds to a step: context keys and values of every row from the target's states,
// then for each request that wants proposals one block through the draft and the target's head (docs/models.md).
// Owner: the CUDA model; owns the place that the draft in use is copied to, and the draft's activations.
// Thread: load() on any; everything else the worker's, one stream.
// Invariant: drafts of equal geometry are computed by the same launches at the same addresses: which one is in use may
// change between replays of a graph. Nothing waits for the host.
#pragma once

#include <mutex>

#include "kernels/cuda/sampling.h"
#include "model/cuda/cuda_layers.h"
#include "model/cuda/draft_weights.h"

namespace levada::model {

class CudaDrafter {
 public:
  static constexpr std::int32_t kMaxBlockRows = 1024;  // at once

  // What it has of its target. All of it outlives the drafter; `logits`: f32 [kMaxBlockRows, vocabulary], free after sampling.
  struct Target {
    const ModelConfig& config;
    const CudaWeights& weights;
    const core::KvLayout& layout;
    kernels::cuda::Linears& linears;
    float* logits;
    DType dtype;
    std::int64_t context, max_rows;
    int max_split_rows;  // of the blocks, as PagedAttention takes them
  };
  static Result<std::unique_ptr<CudaDrafter>> make(const Target& target, const DraftRoom& room,
                                                   std::shared_ptr<const DraftOpener> opener, device::Device& device);

  // Any thread, beside steps.
  Result<std::shared_ptr<const Draft>> load(const std::filesystem::path& folder);
  // Held while a graph is recorded.
  std::mutex& recording() { return recording_; }

  // This draft is in use for what is launched from now on. True if it lies in another way than the one before: graphs
  // that were recorded with that one are of no use any more, and none of them is running.
  Result<bool> use(const std::shared_ptr<const Draft>& draft, device::Stream& stream);

  // The rest as parts of a step with the draft in use. After target layer `layer`, whose output is `hidden`:
  Status after_layer(int layer, const device::TensorView& hidden, cudaStream_t stream);
  // After the last of its layers, at the latest after the target's: every row's keys and values into the draft's planes.
  Status write_context(const StepArrays& arrays, std::int32_t rows, const PagedKvPool& pool, cudaStream_t stream);
  // After sampling: block_rows - 1 tokens for each of the first `blocks` of arrays.drafting to `proposed`.
  Status propose(const StepArrays& arrays, std::int32_t blocks, std::int32_t block_rows, const std::int32_t* samples,
                 std::int32_t* proposed, const PagedKvPool& pool, cudaStream_t stream);

  std::int64_t bytes() const;

 private:
  CudaDrafter(const Target& target, const DraftRoom& room, std::shared_ptr<const DraftOpener> opener,
              device::Device& device)
      : target_(target), room_(room), opener_(std::move(opener)), device_(device) {}
  Status allocate();
  Status take_geometry(const DraftConfig& config);
  device::TensorView context_rows(std::int64_t first, std::int64_t rows) const;
  Status propose_some(const StepArrays& arrays, std::int32_t first, std::int32_t blocks, std::int32_t block_rows,
                      const std::int32_t* samples, std::int32_t* proposed, const PagedKvPool& pool,
                      cudaStream_t stream);

  const Target target_;
  const DraftRoom room_;
  const std::shared_ptr<const DraftOpener> opener_;
  device::Device& device_;
  std::mutex recording_;
  int first_plane_ = 0;
  std::unique_ptr<device::DeviceBuffer> live_;            // the weights in use
  std::unique_ptr<device::DeviceBuffer> context_, keys_;  // T [max_rows, hidden], [kContextRows, layers * 2 * kv_width]
  std::unique_ptr<device::DeviceBuffer> blocks_;          // BlockArrays of kMaxBlockRows
  std::unique_ptr<kernels::cuda::Sampler> largest_;       // of each row of logits
  // Of the draft in use.
  std::shared_ptr<const Draft> draft_;
  DraftConfig config_;
  ModelConfig block_config_;
  DraftTensors tensors_;
  std::unique_ptr<kernels::cuda::PagedAttention> attention_;
  std::unique_ptr<CudaLayers> layers_;
};

}  // namespace levada::model
