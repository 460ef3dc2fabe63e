#include "model/cpu_draft.h"

#include "model/draft_loader.h"

namespace levada::model {
namespace {

CpuDraft::Layer load_layer(DraftLoader& loader, const DraftConfig& c, std::int64_t i) {
  using W = DraftWeight;
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  CpuDraft::Layer layer;
  layer.block.input_norm = loader.vector({{W::kInputNorm, c.hidden}}, i);
  layer.block.post_norm = loader.vector({{W::kPostNorm, c.hidden}}, i);
  layer.block.q_norm = loader.vector({{W::kQNorm, c.head_dim}}, i);
  layer.block.k_norm = loader.vector({{W::kKNorm, c.head_dim}}, i);
  layer.kv = loader.matrix({{W::kK, kv}, {W::kV, kv}}, c.hidden, i);
  layer.block.qkv.parts = {loader.matrix({{W::kQ, q}}, c.hidden, i).parts.front(), layer.kv.parts.front()};
  layer.block.o = loader.matrix({{W::kO, c.hidden}}, q, i);
  layer.block.gate_up = loader.matrix({{W::kGate, c.intermediate}, {W::kUp, c.intermediate}}, c.hidden, i);
  layer.block.down = loader.matrix({{W::kDown, c.hidden}}, c.intermediate, i);
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
  fc = loader.matrix({{DraftWeight::kFc, config_.hidden}}, config_.features(), 0);
  hidden_norm = loader.vector({{DraftWeight::kHiddenNorm, config_.hidden}}, 0);
  norm = loader.vector({{DraftWeight::kNorm, config_.hidden}}, 0);
  for (std::int64_t i = 0; i < config_.layers; ++i) layers.push_back(load_layer(loader, config_, i));
  cos_sin = loader.cos_sin(positions);
  bytes_ = loader.bytes();
}

nn::GqaShape CpuDraft::shape() const {
  const DraftConfig& c = config_;
  return {c.hidden, c.heads, c.kv_heads, c.head_dim, c.intermediate, static_cast<float>(c.norm_eps)};
}

}  // namespace levada::model
