#include "nn/tiled_attention.h"

#include <ATen/ops/bmm.h>

#include <algorithm>
#include <cmath>

namespace levada::nn {
namespace {

// Scores of one tile; small enough to stay in a core's cache on the way from product to softmax to product.
constexpr std::int64_t kScoresPerTile = 1 << 20;

at::Tensor transposed(const at::Tensor& matrices) { return matrices.transpose(1, 2); }

// [groups, rows, per, d] as [groups, rows * per, d].
at::Tensor by_group(const at::Tensor& x) { return x.view({x.size(0), x.size(1) * x.size(2), x.size(3)}); }

// [groups, blocks * block, per, d] as [groups * blocks, block * per, d].
at::Tensor by_block(const at::Tensor& x, std::int64_t block) {
  return x.view({x.size(0) * x.size(1) / block, block * x.size(2), x.size(3)});
}

void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  at::Tensor target = out;
  at::bmm_out(target, a, b);
}

void add_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  at::Tensor target = out;
  target.baddbmm_(a, b);
}

}  // namespace

at::Tensor TiledAttention::heads(const at::Tensor& from, std::int64_t first_column, std::int64_t count) const {
  const std::int64_t d = geometry_.head_dim;
  return from.narrow(1, first_column, count * d).unflatten(1, {count, d});
}

std::vector<TiledAttention::Tile> TiledAttention::tiles(const DraftBatch& batch, int kind) const {
  std::vector<Tile> all;
  for (const DraftBatch::Part& part : batch.parts) {
    Tile tile;
    for (std::int64_t b = part.first_block; b < part.first_block + part.blocks; ++b) {
      // Rows of a block see nested ranges: the first row's begin and the last row's end bound them all.
      const auto first = static_cast<std::size_t>(b * batch.block),
                 last = first + static_cast<std::size_t>(batch.block) - 1;
      const std::int64_t begin = batch.host_begin[kind][first], end = batch.host_end[kind][last];
      const std::int64_t key = tile.rows == 0 ? begin : std::min(tile.first_key, begin);
      const std::int64_t keys = (tile.rows == 0 ? end : std::max(tile.first_key + tile.keys, end)) - key;
      const std::int64_t rows = tile.rows + batch.block;
      if (tile.rows > 0 && rows * geometry_.heads * keys > kScoresPerTile) {
        all.push_back(tile);
        tile = {tile.first_row + tile.rows, batch.block, begin, end - begin};
      } else {
        tile = {tile.rows == 0 ? b * batch.block : tile.first_row, rows, key, keys};
      }
    }
    all.push_back(tile);
  }
  return all;
}

ScoreTile TiledAttention::score_tile(const DraftBatch& batch, int kind, const Tile& tile) const {
  ScoreTile scores;
  scores.first_key = tile.first_key;
  scores.key_begin = batch.key_begin[kind].narrow(0, tile.first_row, tile.rows);
  scores.key_end = batch.key_end[kind].narrow(0, tile.first_row, tile.rows);
  scores.own_end = batch.own_end[kind].narrow(0, tile.first_row, tile.rows);
  scores.scale = 1.0f / std::sqrt(static_cast<float>(geometry_.head_dim));
  return scores;
}

BlockAttention::Context TiledAttention::project_context(const DraftBatch& batch, const DraftLayerTensors& w,
                                                        const at::Tensor& context_kv) {
  const std::int64_t groups = geometry_.kv_heads, keys = batch.keys(), d = geometry_.head_dim;
  const at::Tensor k = scratch_.get("context.k", {groups, keys, 1, d}, ops_.score_type());
  const at::Tensor v = scratch_.get("context.v", {groups, keys, 1, d}, ops_.score_type());
  if (keys > 0) {
    ops_.norm_rope(heads(context_kv, 0, groups), w.k_norm, geometry_.eps, batch.key_angles, k);
    ops_.to_heads(heads(context_kv, geometry_.kv_width(), groups), v);
  }
  return {k.squeeze(2), v.squeeze(2)};
}

TiledAttention::Rows TiledAttention::load(const DraftBatch& batch, const Tile& tile, const DraftLayerTensors& w,
                                          const at::Tensor& qkv, const Context& keys) {
  const DraftGeometry& g = geometry_;
  const at::Tensor part = qkv.narrow(0, tile.first_row, tile.rows);
  const at::Tensor angles = batch.row_angles.narrow(0, tile.first_row, tile.rows);
  const auto type = ops_.score_type();
  Rows rows;
  rows.q = scratch_.get("tile.q", {g.kv_heads, tile.rows, g.per_group(), g.head_dim}, type);
  rows.k = scratch_.get("tile.k", {g.kv_heads, tile.rows, 1, g.head_dim}, type);
  rows.v = scratch_.get("tile.v", {g.kv_heads, tile.rows, 1, g.head_dim}, type);
  rows.context = scratch_.get("tile.context", {g.kv_heads, tile.rows, g.per_group(), tile.keys}, type);
  rows.own = scratch_.get("tile.own", {g.kv_heads, tile.rows, g.per_group(), batch.block}, type);
  ops_.norm_rope(heads(part, 0, g.heads), w.q_norm, g.eps, angles, rows.q);
  ops_.norm_rope(heads(part, g.q_width(), g.kv_heads), w.k_norm, g.eps, angles, rows.k);
  ops_.to_heads(heads(part, g.q_width() + g.kv_width(), g.kv_heads), rows.v);
  product(by_block(rows.q, batch.block), transposed(by_block(rows.k, batch.block)), by_block(rows.own, batch.block));
  if (tile.keys > 0) {
    product(by_group(rows.q), transposed(keys.k.narrow(1, tile.first_key, tile.keys)), by_group(rows.context));
  }
  return rows;
}

void TiledAttention::forward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                             const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& out,
                             const at::Tensor& lse) {
  const int kind = window > 0 ? 1 : 0;
  const DraftGeometry& g = geometry_;
  const Context keys = project_context(batch, w, context_kv);
  for (const Tile& tile : tiles(batch, kind)) {
    const Rows rows = load(batch, tile, w, qkv, keys);
    const at::Tensor tile_lse =
        lse.narrow(0, tile.first_row * g.heads, tile.rows * g.heads).view({g.kv_heads, tile.rows, g.per_group()});
    ops_.softmax(score_tile(batch, kind, tile), rows.context, rows.own, tile_lse);
    const at::Tensor answer = scratch_.get("tile.out", rows.q.sizes(), ops_.score_type());
    product(by_block(rows.own, batch.block), by_block(rows.v, batch.block), by_block(answer, batch.block));
    if (tile.keys > 0) {
      add_product(by_group(rows.context), keys.v.narrow(1, tile.first_key, tile.keys), by_group(answer));
    }
    ops_.from_heads(answer, heads(out.narrow(0, tile.first_row, tile.rows), 0, g.heads));
  }
}

// From probabilities (rows) and the gradients of the scores (grads.context, grads.own) to those of q, k and v.
void TiledAttention::backward_tile(const DraftBatch& batch, const Tile& tile, const ScoreTile& scores, const Rows& rows,
                                   const Context& keys, const Context& dkeys, const at::Tensor& lse,
                                   const at::Tensor& delta, const at::Tensor& dout, const Rows& grads) {
  const std::int64_t block = batch.block;
  product(by_block(dout, block), transposed(by_block(rows.v, block)), by_block(grads.own, block));
  if (tile.keys > 0) {
    product(by_group(dout), transposed(keys.v.narrow(1, tile.first_key, tile.keys)), by_group(grads.context));
  }
  ops_.softmax_backward(scores, lse, delta, rows.context, grads.context, rows.own, grads.own);

  product(by_block(grads.own, block), by_block(rows.k, block), by_block(grads.q, block));
  product(transposed(by_block(grads.own, block)), by_block(rows.q, block), by_block(grads.k, block));
  product(transposed(by_block(rows.own, block)), by_block(dout, block), by_block(grads.v, block));
  if (tile.keys == 0) return;
  add_product(by_group(grads.context), keys.k.narrow(1, tile.first_key, tile.keys), by_group(grads.q));
  add_product(transposed(by_group(grads.context)), by_group(rows.q), dkeys.k.narrow(1, tile.first_key, tile.keys));
  add_product(transposed(by_group(rows.context)), by_group(dout), dkeys.v.narrow(1, tile.first_key, tile.keys));
}

void TiledAttention::backward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                              const DraftLayerTensors& dw, const at::Tensor& qkv, const at::Tensor& context_kv,
                              const at::Tensor& out, const at::Tensor& dout, const at::Tensor& lse,
                              const at::Tensor& dqkv, const at::Tensor& dcontext_kv) {
  const int kind = window > 0 ? 1 : 0;
  const DraftGeometry& g = geometry_;
  const auto type = ops_.score_type();
  const Context keys = project_context(batch, w, context_kv);
  const Context dkeys{scratch_.get("context.dk", keys.k.sizes(), type),
                      scratch_.get("context.dv", keys.v.sizes(), type)};
  dkeys.k.zero_();
  dkeys.v.zero_();
  for (const Tile& tile : tiles(batch, kind)) {
    const Rows rows = load(batch, tile, w, qkv, keys);
    const Rows grads{scratch_.get("tile.dq", rows.q.sizes(), type), scratch_.get("tile.dk", rows.k.sizes(), type),
                     scratch_.get("tile.dv", rows.v.sizes(), type),
                     scratch_.get("tile.dcontext", rows.context.sizes(), type),
                     scratch_.get("tile.down", rows.own.sizes(), type)};
    const at::Tensor tile_dout = scratch_.get("tile.dout", rows.q.sizes(), type);
    const at::Tensor delta = scratch_.get("tile.delta", {g.kv_heads, tile.rows, g.per_group()}, at::kFloat);
    auto part = [&](const at::Tensor& all) { return all.narrow(0, tile.first_row, tile.rows); };
    ops_.attention_grad_in(heads(part(dout), 0, g.heads), heads(part(out), 0, g.heads), tile_dout, delta);
    const at::Tensor tile_lse =
        lse.narrow(0, tile.first_row * g.heads, tile.rows * g.heads).view({g.kv_heads, tile.rows, g.per_group()});
    backward_tile(batch, tile, score_tile(batch, kind, tile), rows, keys, dkeys, tile_lse, delta, tile_dout, grads);

    const at::Tensor angles = part(batch.row_angles), x = part(qkv), dx = part(dqkv);
    const std::int64_t k = g.q_width(), v = k + g.kv_width();
    ops_.norm_rope_backward(heads(x, 0, g.heads), w.q_norm, g.eps, angles, grads.q, heads(dx, 0, g.heads), dw.q_norm);
    ops_.norm_rope_backward(heads(x, k, g.kv_heads), w.k_norm, g.eps, angles, grads.k, heads(dx, k, g.kv_heads),
                            dw.k_norm);
    ops_.from_heads(grads.v, heads(dx, v, g.kv_heads));
  }
  if (batch.keys() == 0) return;
  ops_.norm_rope_backward(heads(context_kv, 0, g.kv_heads), w.k_norm, g.eps, batch.key_angles, dkeys.k.unsqueeze(2),
                          heads(dcontext_kv, 0, g.kv_heads), dw.k_norm);
  ops_.from_heads(dkeys.v.unsqueeze(2), heads(dcontext_kv, g.kv_width(), g.kv_heads));
}

std::unique_ptr<BlockAttention> TileOps::make_attention(const DraftGeometry& geometry, Scratch& scratch) {
  return std::make_unique<TiledAttention>(geometry, *this, scratch);
}

}  // namespace levada::nn
