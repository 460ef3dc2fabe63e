#include "nn/eagle_attention.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

namespace levada::nn {
namespace {

// As TiledAttention's: scores stay in a core's cache on the way from product to softmax to product.
constexpr std::int64_t kEagleScoresPerTile = 1 << 20;

at::Tensor flipped(const at::Tensor& matrices) { return matrices.transpose(1, 2); }

// [groups, rows, per, d] as [groups, rows * per, d].
at::Tensor by_key_group(const at::Tensor& x) { return x.view({x.size(0), x.size(1) * x.size(2), x.size(3)}); }

// [groups, rows, n, d] as [groups * rows, n, d].
at::Tensor by_row(const at::Tensor& x) { return x.view({x.size(0) * x.size(1), x.size(2), x.size(3)}); }

void set_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  at::Tensor target = out;
  at::bmm_out(target, a, b);
}

void sum_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  at::Tensor target = out;
  target.baddbmm_(a, b);
}

}  // namespace

at::Tensor EagleAttention::heads(const at::Tensor& from, std::int64_t first_column, std::int64_t count) const {
  const std::int64_t d = geometry_.head_dim;
  return from.narrow(1, first_column, count * d).unflatten(1, {count, d});
}

void EagleAttention::begin(const EagleBatch& batch, const at::Tensor& kv) {
  const EagleGeometry& g = geometry_;
  const auto type = ops_.score_type();
  keys_ = scratch_.get("eagle.keys", {g.kv_heads, batch.keys(), g.head_dim}, type);
  values_ = scratch_.get("eagle.values", keys_.sizes(), type);
  ops_.rope(heads(kv, 0, g.kv_heads), batch.key_angles, keys_.unsqueeze(2));
  ops_.to_heads(heads(kv, g.kv_width(), g.kv_heads), values_.unsqueeze(2));
  own_keys_ = scratch_.get("eagle.own_keys", {g.kv_heads, batch.row_count(), g.steps - 1, g.head_dim}, type);
  own_values_ = scratch_.get("eagle.own_values", own_keys_.sizes(), type);
}

void EagleAttention::add(const EagleBatch& batch, std::int64_t step, const at::Tensor& kv) {
  const EagleGeometry& g = geometry_;
  const at::Tensor one = scratch_.get("eagle.own", {g.kv_heads, batch.row_count(), 1, g.head_dim}, ops_.score_type());
  ops_.rope(heads(kv, 0, g.kv_heads), batch.row_angles[static_cast<std::size_t>(step)], one);
  own_keys_.narrow(2, step - 1, 1).copy_(one);
  ops_.to_heads(heads(kv, g.kv_width(), g.kv_heads), one);
  own_values_.narrow(2, step - 1, 1).copy_(one);
}

std::vector<EagleAttention::Tile> EagleAttention::tiles(const EagleBatch& batch) const {
  std::vector<Tile> all;
  for (const EagleBatch::Part& part : batch.parts) {
    Tile tile{part.first_row, 0, part.first_key, 0};
    for (std::int64_t row = part.first_row; row < part.first_row + part.rows; ++row) {
      const std::int64_t keys = batch.row_keys[static_cast<std::size_t>(row)] + 1 - part.first_key;
      if (tile.rows > 0 && (tile.rows + 1) * geometry_.heads * keys > kEagleScoresPerTile) {
        all.push_back(tile);
        tile = {row, 0, part.first_key, 0};
      }
      ++tile.rows;
      tile.keys = keys;
    }
    if (tile.rows > 0) all.push_back(tile);
  }
  return all;
}

EagleAttention::Rows EagleAttention::make_rows(const char* name, const Tile& tile, std::int64_t step) {
  const EagleGeometry& g = geometry_;
  auto get = [&](const char* part, std::int64_t n, std::int64_t width) {
    return scratch_.get(std::string(name) + part, {g.kv_heads, tile.rows, n, width}, ops_.score_type());
  };
  return {get(".q", g.per_group(), g.head_dim), get(".k", step, g.head_dim), get(".v", step, g.head_dim),
          get(".context", g.per_group(), tile.keys), get(".own", g.per_group(), step)};
}

EagleAttention::Rows EagleAttention::load(const EagleBatch& batch, std::int64_t step, const Tile& tile,
                                          const at::Tensor& q) {
  const at::Tensor angles = batch.row_angles[static_cast<std::size_t>(step)];
  Rows rows = make_rows("eagle.tile", tile, step);
  ops_.rope(heads(q.narrow(0, tile.first_row, tile.rows), 0, geometry_.heads),
            angles.narrow(0, tile.first_row, tile.rows), rows.q);
  set_product(by_key_group(rows.q), flipped(keys_.narrow(1, tile.first_key, tile.keys)), by_key_group(rows.context));
  if (step == 0) return rows;
  rows.k.copy_(own_keys_.narrow(1, tile.first_row, tile.rows).narrow(2, 0, step));
  rows.v.copy_(own_values_.narrow(1, tile.first_row, tile.rows).narrow(2, 0, step));
  set_product(by_row(rows.q), flipped(by_row(rows.k)), by_row(rows.own));
  return rows;
}

ScoreTile EagleAttention::score_tile(const EagleBatch& batch, std::int64_t step, const Tile& tile) {
  ScoreTile scores;
  scores.first_key = tile.first_key;
  scores.key_begin = batch.key_begin.narrow(0, tile.first_row, tile.rows);
  scores.key_end = batch.key_end.narrow(0, tile.first_row, tile.rows);
  scores.own_end = scratch_.get("eagle.own_end", {tile.rows}, at::kLong).fill_(step);
  scores.scale = 1.0f / std::sqrt(static_cast<float>(geometry_.head_dim));
  return scores;
}

void EagleAttention::forward(const EagleBatch& batch, std::int64_t step, const at::Tensor& q, const at::Tensor& out,
                             const at::Tensor& lse) {
  const EagleGeometry& g = geometry_;
  for (const Tile& tile : tiles(batch)) {
    const Rows rows = load(batch, step, tile, q);
    const at::Tensor tile_lse =
        lse.narrow(0, tile.first_row * g.heads, tile.rows * g.heads).view({g.kv_heads, tile.rows, g.per_group()});
    ops_.softmax(score_tile(batch, step, tile), rows.context, rows.own, tile_lse);
    const at::Tensor answer = scratch_.get("eagle.tile.out", rows.q.sizes(), ops_.score_type());
    set_product(by_key_group(rows.context), values_.narrow(1, tile.first_key, tile.keys), by_key_group(answer));
    if (step > 0) sum_product(by_row(rows.own), by_row(rows.v), by_row(answer));
    ops_.from_heads(answer, heads(out.narrow(0, tile.first_row, tile.rows), 0, g.heads));
  }
}

void EagleAttention::begin_backward() {
  const auto type = ops_.score_type();
  dkeys_ = scratch_.get("eagle.dkeys", keys_.sizes(), type).zero_();
  dvalues_ = scratch_.get("eagle.dvalues", keys_.sizes(), type).zero_();
  down_keys_ = scratch_.get("eagle.down_keys", own_keys_.sizes(), type).zero_();
  down_values_ = scratch_.get("eagle.down_values", own_keys_.sizes(), type).zero_();
}

// From raw scores to the gradients of queries, keys and values.
void EagleAttention::backward_tile(std::int64_t step, const Tile& tile, const ScoreTile& scores, const Rows& rows,
                                   const Rows& grads, const at::Tensor& lse, const at::Tensor& delta,
                                   const at::Tensor& dout) {
  const at::Tensor keys = keys_.narrow(1, tile.first_key, tile.keys);
  const at::Tensor values = values_.narrow(1, tile.first_key, tile.keys);
  set_product(by_key_group(dout), flipped(values), by_key_group(grads.context));
  if (step > 0) set_product(by_row(dout), flipped(by_row(rows.v)), by_row(grads.own));
  ops_.softmax_backward(scores, lse, delta, rows.context, grads.context, rows.own, grads.own);

  set_product(by_key_group(grads.context), keys, by_key_group(grads.q));
  sum_product(flipped(by_key_group(grads.context)), by_key_group(rows.q), dkeys_.narrow(1, tile.first_key, tile.keys));
  sum_product(flipped(by_key_group(rows.context)), by_key_group(dout), dvalues_.narrow(1, tile.first_key, tile.keys));
  if (step == 0) return;
  sum_product(by_row(grads.own), by_row(rows.k), by_row(grads.q));
  set_product(flipped(by_row(grads.own)), by_row(rows.q), by_row(grads.k));
  set_product(flipped(by_row(rows.own)), by_row(dout), by_row(grads.v));
  down_keys_.narrow(1, tile.first_row, tile.rows).narrow(2, 0, step).add_(grads.k);
  down_values_.narrow(1, tile.first_row, tile.rows).narrow(2, 0, step).add_(grads.v);
}

void EagleAttention::backward(const EagleBatch& batch, std::int64_t step, const at::Tensor& q, const at::Tensor& out,
                              const at::Tensor& dout, const at::Tensor& lse, const at::Tensor& dq) {
  const EagleGeometry& g = geometry_;
  for (const Tile& tile : tiles(batch)) {
    const Rows rows = load(batch, step, tile, q), grads = make_rows("eagle.grad", tile, step);
    auto part = [&](const at::Tensor& all) { return heads(all.narrow(0, tile.first_row, tile.rows), 0, g.heads); };
    const at::Tensor tile_dout = scratch_.get("eagle.tile.dout", rows.q.sizes(), ops_.score_type());
    const at::Tensor delta = scratch_.get("eagle.tile.delta", {g.kv_heads, tile.rows, g.per_group()}, at::kFloat);
    ops_.attention_grad_in(part(dout), part(out), tile_dout, delta);
    const at::Tensor tile_lse =
        lse.narrow(0, tile.first_row * g.heads, tile.rows * g.heads).view({g.kv_heads, tile.rows, g.per_group()});
    backward_tile(step, tile, score_tile(batch, step, tile), rows, grads, tile_lse, delta, tile_dout);
    const at::Tensor angles = batch.row_angles[static_cast<std::size_t>(step)];
    ops_.rope_backward(angles.narrow(0, tile.first_row, tile.rows), grads.q, part(dq));
  }
}

void EagleAttention::take(const EagleBatch& batch, std::int64_t step, const at::Tensor& dkv) {
  const EagleGeometry& g = geometry_;
  const at::Tensor k = heads(dkv, 0, g.kv_heads), v = heads(dkv, g.kv_width(), g.kv_heads);
  if (step == 0) {
    ops_.rope_backward(batch.key_angles, dkeys_.unsqueeze(2), k);
    ops_.from_heads(dvalues_.unsqueeze(2), v);
    return;
  }
  const at::Tensor one = scratch_.get("eagle.own", {g.kv_heads, batch.row_count(), 1, g.head_dim}, ops_.score_type());
  ops_.rope_backward(batch.row_angles[static_cast<std::size_t>(step)], one.copy_(down_keys_.narrow(2, step - 1, 1)), k);
  ops_.from_heads(one.copy_(down_values_.narrow(2, step - 1, 1)), v);
}

}  // namespace levada::nn
