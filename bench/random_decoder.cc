#include "bench/random_decoder.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "base/check.h"
#include "model/rope.h"

namespace levada::bench {
namespace {

constexpr std::size_t kNumbers = (std::size_t{8} << 20) + 61;  // no multiple of a row: layers differ

model::ModelConfig smollm2() {
  model::ModelConfig c;
  c.architecture = "llama";
  c.hidden = 576, c.layers = 30, c.heads = 9, c.kv_heads = 3, c.head_dim = 64, c.intermediate = 1536;
  c.vocabulary = 49'152, c.context = 8192, c.norm_eps = 1e-5f, c.tied = true, c.rope.theta = 100'000;
  return c;
}

model::ModelConfig qwen3_8b() {
  model::ModelConfig c;
  c.architecture = "qwen3";
  c.hidden = 4096, c.layers = 36, c.heads = 32, c.kv_heads = 8, c.head_dim = 128, c.intermediate = 12'288;
  c.vocabulary = 151'936, c.context = 16'384, c.norm_eps = 1e-6f, c.qk_norm = true, c.rope.theta = 1'000'000;
  return c;
}

bool is_matrix(model::Weight weight) {
  using enum model::Weight;
  return weight != kFinalNorm && weight != kInputNorm && weight != kPostNorm && weight != kQNorm && weight != kKNorm;
}

}  // namespace

Result<RandomDecoder> RandomDecoder::of_shape(std::string_view shape) {
  if (shape == "smollm2") return RandomDecoder(smollm2());
  if (shape == "qwen3-8b") return RandomDecoder(qwen3_8b());
  return invalid_argument("there is no shape '" + std::string(shape) + "' (known: smollm2, qwen3-8b)");
}

RandomDecoder::RandomDecoder(model::ModelConfig config) : config_(std::move(config)), numbers_(kNumbers) {
  std::mt19937 bits(11);
  // 2^-7 to 2^-5, either sign: about as wide as trained weights are.
  for (std::uint16_t& x : numbers_) x = static_cast<std::uint16_t>(0x3c00u | (bits() & 0x80ffu));
  info_.path = "random " + config_.architecture;
  info_.architecture = config_.architecture;
  info_.weights_identity = "random";
  info_.vocab_size = static_cast<std::int32_t>(config_.vocabulary);
  info_.hidden_size = static_cast<std::int32_t>(config_.hidden);
  info_.num_layers = static_cast<std::int32_t>(config_.layers);
  info_.context_length_tokens = static_cast<std::int32_t>(config_.context);
  info_.parameters = layer_parameters() + head_parameters() * (config_.tied ? 1 : 2);
}

void RandomDecoder::read(model::Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
                         void* out) {
  if (!is_matrix(weight)) {
    LEVADA_CHECK(dtype == DType::kF32, "norms are float32");
    std::fill_n(static_cast<float*>(out), count, 1.0f);
    return;
  }
  LEVADA_CHECK(dtype == DType::kBF16, "random matrices are bfloat16");
  const auto wanted = static_cast<std::size_t>(count * columns(weight));
  auto at =
      static_cast<std::size_t>((layer * 16 + static_cast<std::int64_t>(weight)) * 7919 + first * columns(weight)) %
      numbers_.size();
  auto* to = static_cast<std::uint16_t*>(out);
  for (std::size_t done = 0; done < wanted;) {
    const std::size_t n = std::min(wanted - done, numbers_.size() - at);
    std::memcpy(to + done, numbers_.data() + at, n * sizeof(std::uint16_t));
    done += n;
    at = 0;
  }
}

void RandomDecoder::fill_cos_sin(float* out) {
  model::fill_cos_sin(config_.rope, config_.head_dim, config_.context, out);
}

std::int64_t RandomDecoder::columns(model::Weight weight) const {
  if (weight == model::Weight::kO) return config_.heads * config_.head_dim;
  return weight == model::Weight::kDown ? config_.intermediate : config_.hidden;
}

std::int64_t RandomDecoder::layer_parameters() const {
  const std::int64_t attention = config_.hidden * (2 * config_.heads + 2 * config_.kv_heads) * config_.head_dim;
  return config_.layers * (attention + 3 * config_.hidden * config_.intermediate);
}

}  // namespace levada::bench
