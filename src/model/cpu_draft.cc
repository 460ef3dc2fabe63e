#include "model/cpu_draft.h"

#include <ATen/ops/empty.h>

#include "model/rough_matrix.h"
#include "nn/tensor.h"

namespace levada::model {
namespace {

class DraftLoader {
 public:
  DraftLoader(const DraftSource& source, bool rough) : source_(source), rough_(rough) {}

  // The rows of several weights, one behind the other.
  nn::Matrix matrix(std::initializer_list<std::pair<DraftWeight, std::int64_t>> parts, std::int64_t columns,
                    std::int64_t layer) {
    const bool quantised = rough_ && fits_q8_0(columns);
    const at::Tensor whole = joined(parts, {columns}, rough_ && !quantised ? DType::kBF16 : DType::kF32, layer);
    const nn::Matrix matrix = quantised ? to_q8_0(whole) : nn::Matrix(whole);
    const auto* const blocks = std::get_if<std::shared_ptr<const kernels::QuantMatrix>>(&matrix);
    bytes_ += blocks != nullptr ? (*blocks)->bytes() : static_cast<std::int64_t>(whole.nbytes());
    return matrix;
  }
  at::Tensor vector(std::initializer_list<std::pair<DraftWeight, std::int64_t>> parts, std::int64_t layer) {
    const at::Tensor whole = joined(parts, {}, DType::kF32, layer);
    bytes_ += static_cast<std::int64_t>(whole.nbytes());
    return whole;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  at::Tensor joined(std::initializer_list<std::pair<DraftWeight, std::int64_t>> parts, std::vector<std::int64_t> row,
                    DType type, std::int64_t layer) {
    std::vector<std::int64_t> sizes{0};
    for (const auto& [weight, rows] : parts) sizes[0] += rows;
    sizes.insert(sizes.end(), row.begin(), row.end());
    const at::Tensor whole = at::empty(sizes, at::TensorOptions().dtype(nn::scalar_type(type)));
    std::int64_t first = 0;
    for (const auto& [weight, rows] : parts) {
      source_.read(weight, layer, 0, rows, type, whole.narrow(0, first, rows).data_ptr());
      first += rows;
    }
    return whole;
  }

  const DraftSource& source_;
  const bool rough_;
  std::int64_t bytes_ = 0;
};

nn::Projection one(nn::Matrix matrix) { return {{std::move(matrix)}}; }

CpuDraft::Layer load_layer(DraftLoader& loader, const DraftConfig& c, std::int64_t i) {
  using W = DraftWeight;
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  CpuDraft::Layer layer;
  layer.block.input_norm = loader.vector({{W::kInputNorm, c.hidden}}, i);
  layer.block.post_norm = loader.vector({{W::kPostNorm, c.hidden}}, i);
  layer.block.q_norm = loader.vector({{W::kQNorm, c.head_dim}}, i);
  layer.block.k_norm = loader.vector({{W::kKNorm, c.head_dim}}, i);
  layer.kv = one(loader.matrix({{W::kK, kv}, {W::kV, kv}}, c.hidden, i));
  layer.block.qkv.parts = {loader.matrix({{W::kQ, q}}, c.hidden, i), layer.kv.parts.front()};
  layer.block.o = one(loader.matrix({{W::kO, c.hidden}}, q, i));
  layer.block.gate_up = one(loader.matrix({{W::kGate, c.intermediate}, {W::kUp, c.intermediate}}, c.hidden, i));
  layer.block.down = one(loader.matrix({{W::kDown, c.hidden}}, c.intermediate, i));
  if (c.attention_bias) {
    layer.qkv_bias = loader.vector({{W::kQBias, q}, {W::kKBias, kv}, {W::kVBias, kv}}, i);
    layer.kv_bias = layer.qkv_bias.narrow(0, q, 2 * kv);
    layer.o_bias = loader.vector({{W::kOBias, c.hidden}}, i);
  }
  layer.slides = c.sliding[static_cast<std::size_t>(i)];
  return layer;
}

}  // namespace

CpuDraft::CpuDraft(const DraftSource& source, bool rough, nn::Projection target_head, std::int64_t positions)
    : head(std::move(target_head)), rough_(rough), config_(source.config()) {
  DraftLoader loader(source, rough);
  fc = one(loader.matrix({{DraftWeight::kFc, config_.hidden}}, config_.features(), 0));
  hidden_norm = loader.vector({{DraftWeight::kHiddenNorm, config_.hidden}}, 0);
  norm = loader.vector({{DraftWeight::kNorm, config_.hidden}}, 0);
  for (std::int64_t i = 0; i < config_.layers; ++i) layers.push_back(load_layer(loader, config_, i));
  cos_sin = at::empty({positions, config_.head_dim}, at::TensorOptions().dtype(at::kFloat));
  source.fill_cos_sin(positions, cos_sin.data_ptr<float>());
  bytes_ = loader.bytes() + static_cast<std::int64_t>(cos_sin.nbytes());
}

nn::GqaShape CpuDraft::shape() const {
  const DraftConfig& c = config_;
  return {c.hidden, c.heads, c.kv_heads, c.head_dim, c.intermediate, static_cast<float>(c.norm_eps)};
}

}  // namespace levada::model
