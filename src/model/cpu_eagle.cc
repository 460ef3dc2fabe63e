#include "model/cpu_eagle.h"

#include "model/draft_loader.h"

namespace levada::model {

CpuEagle::CpuEagle(const DraftSource& source, bool rough, nn::Projection target_embedding, std::int64_t positions)
    : embedding(std::move(target_embedding)), ids(source.draft_ids()), rough_(rough), config_(source.config()) {
  using W = DraftWeight;
  const DraftConfig& c = config_;
  const std::int64_t q = c.heads * c.head_dim, width = kv_width();
  DraftLoader loader(source, rough);
  if (source.has(W::kEmbedding)) {
    DraftLoader exact(source, false);
    embedding = exact.matrix({{W::kEmbedding, c.vocabulary}}, c.hidden, 0);
    bytes_ += exact.bytes();
  }
  fc = loader.matrix({{W::kFc, c.hidden}}, c.features(), 0);
  for (std::int64_t chunk = 0; source.has(W::kFcNorm) && chunk * c.hidden < c.features(); ++chunk) {
    fc_norms.push_back(loader.vector({{W::kFcNorm, c.hidden}}, chunk));
  }
  input_norm = loader.vector({{W::kInputNorm, c.hidden}}, 0);
  hidden_norm = loader.vector({{W::kHiddenNorm, c.hidden}}, 0);
  post_norm = loader.vector({{W::kPostNorm, c.hidden}}, 0);
  norm = loader.vector({{W::kNorm, c.hidden}}, 0);
  kv = loader.matrix({{W::kK, width}, {W::kV, width}}, 2 * c.hidden, 0);
  qkv.parts = {loader.matrix({{W::kQ, q}}, 2 * c.hidden, 0).parts.front(), kv.parts.front()};
  o = loader.matrix({{W::kO, c.hidden}}, q, 0);
  gate_up = loader.matrix({{W::kGate, c.intermediate}, {W::kUp, c.intermediate}}, c.hidden, 0);
  down = loader.matrix({{W::kDown, c.hidden}}, c.intermediate, 0);
  head = loader.matrix({{W::kHead, c.draft_vocabulary}}, c.hidden, 0);
  cos_sin = loader.cos_sin(positions);
  bytes_ += loader.bytes();
}

nn::GqaShape CpuEagle::shape() const {
  const DraftConfig& c = config_;
  return {c.hidden, c.heads, c.kv_heads, c.head_dim, c.intermediate, static_cast<float>(c.norm_eps)};
}

}  // namespace levada::model
