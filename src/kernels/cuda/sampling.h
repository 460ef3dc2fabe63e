// What: Sampler, choice of tokens on CUDA with every parameter of the API, one block per row, no host in between.
// Owner: Sampler owns the rows' parameters on the device and the table its penalties count in; logits and tokens are the
// caller's, logits are clobbered.
// Thread: one stream at a time. upload() may prepare the next step while this one runs.
// Invariant: the rules are kernels::sample_token's (kernels/sampling.h), the twin. Weights are the same bit for bit; their
// sums are exact integers in units of 2^-45, where the twin adds float64: a draw or a top_p within 1e-8 of a border may
// fall to the neighbour, and what weighs below 2^-45 of the largest is never drawn. A token depends on its row alone.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <span>

#include "base/status.h"
#include "device/device.h"
#include "kernels/ops.h"

namespace levada::kernels::cuda {

struct SamplerRow {
  SampleParams params;
  // Row of run()'s input_ids whose id is the newest of the output though output_history lacks it; -1: none.
  std::int32_t appended_row = -1;
};

class Sampler {
 public:
  static constexpr std::int64_t kMaxVocabulary = 1 << 18;
  // `max_ids`: histories, banned ids, biases (two each) and mask words of one step together. kResourceExhausted without memory.
  static Result<std::unique_ptr<Sampler>> create(device::Device& device, std::int32_t max_rows, std::int64_t vocabulary,
                                                 std::int64_t max_ids);

  // Sends the parameters for the next run() of `padded_rows` rows; the rows past `rows` take the largest logit.
  // kResourceExhausted when there are more rows or ids than room. Spans aren't kept.
  Status upload(std::span<const SamplerRow> rows, std::int32_t padded_rows, device::Stream& stream);

  // logits: f32 [R, V]; input_ids: device, or nullptr if no row appends one; tokens: device i32 [R]. The launch has the same
  // arguments in every step of R rows: it can be recorded in a graph and replayed after each upload().
  Status run(const TensorView& logits, const std::int32_t* input_ids, const TensorView& tokens, cudaStream_t stream);

  std::int64_t bytes() const { return static_cast<std::int64_t>(device_->size_bytes() + table_->size_bytes()); }

 private:
  struct Block {
    std::unique_ptr<device::DeviceBuffer> pinned;
    std::unique_ptr<device::Event> sent;
  };
  Sampler(std::int32_t max_rows, std::int64_t vocabulary, std::int64_t max_ids)
      : max_rows_(max_rows), vocabulary_(vocabulary), max_ids_(max_ids) {}
  std::size_t ids_offset() const;

  std::int32_t max_rows_;
  std::int64_t vocabulary_, max_ids_;
  std::array<Block, 2> blocks_;
  std::size_t next_ = 0;
  std::unique_ptr<device::DeviceBuffer> device_;  // rows, then ids: as in the pinned blocks
  std::unique_ptr<device::DeviceBuffer> table_;   // zero between launches
};

}  // namespace levada::kernels::cuda
