// What: RandomDecoder, a decoder's weights as the CUDA model reads them, of a published shape but random: speed needs no
// checkpoint.
// Owner: the bench.
// Thread: the loading one.
// Invariant: numbers keep activations finite; norms are ones; seeded, so that two runs load the same bytes.
#pragma once

#include <string_view>
#include <vector>

#include "model/cuda/factory.h"

namespace levada::bench {

class RandomDecoder final : public model::DecoderSource {
 public:
  // "smollm2" (135M) or "qwen3-8b".
  static Result<RandomDecoder> of_shape(std::string_view shape);

  const model::ModelConfig& config() const override { return config_; }
  const core::ModelInfo& info() const override { return info_; }
  // REQUIRES: matrices as bfloat16, vectors as float32.
  void read(model::Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
            void* out) override;
  void fill_cos_sin(float* out) override;

  // What a decode step reads and a prefill multiplies with.
  std::int64_t layer_parameters() const;  // of all layers, without norms
  std::int64_t head_parameters() const { return config_.vocabulary * config_.hidden; }

 private:
  explicit RandomDecoder(model::ModelConfig config);
  std::int64_t columns(model::Weight weight) const;
  model::ModelConfig config_;
  core::ModelInfo info_;
  std::vector<std::uint16_t> numbers_;  // bf16, repeated
};

}  // namespace levada::bench
