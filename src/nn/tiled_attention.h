// What: TiledAttention, block attention as matrix products around a softmax, tile by tile.
// Owner: the draft; operations and scratch are the trainer's.
// Thread: the trainer's.
// Invariant: a tile is a few neighbouring blocks against the range of context keys that any of them sees, and each block
// against itself; small enough that its scores stay in a core's cache between product, softmax and product.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/block_attention.h"
#include "nn/draft_ops.h"
#include "nn/scratch.h"

namespace levada::nn {

class TiledAttention final : public BlockAttention {
 public:
  TiledAttention(const DraftGeometry& geometry, TileOps& ops, Scratch& scratch)
      : geometry_(geometry), ops_(ops), scratch_(scratch) {}

  void forward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const at::Tensor& qkv,
               const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& lse) override;
  void backward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const DraftLayerTensors& dw,
                const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& dout,
                const at::Tensor& lse, const at::Tensor& dqkv, const at::Tensor& dcontext_kv) override;
  Context project_context(const DraftBatch& batch, const DraftLayerTensors& w, const at::Tensor& context_kv) override;

 private:
  struct Tile {
    std::int64_t first_row = 0, rows = 0;
    std::int64_t first_key = 0, keys = 0;
  };
  // A tile's queries, own keys and values, head-major, and its scores.
  struct Rows {
    at::Tensor q, k, v;
    at::Tensor context, own;  // scores
  };
  std::vector<Tile> tiles(const DraftBatch& batch, int kind) const;
  Rows load(const DraftBatch& batch, const Tile& tile, const DraftLayerTensors& w, const at::Tensor& qkv,
            const Context& keys);
  ScoreTile score_tile(const DraftBatch& batch, int kind, const Tile& tile) const;
  void backward_tile(const DraftBatch& batch, const Tile& tile, const ScoreTile& scores, const Rows& rows,
                     const Context& keys, const Context& dkeys, const at::Tensor& lse, const at::Tensor& delta,
                     const at::Tensor& dout, const Rows& grads);
  // Columns of a projection as [rows, heads, head_dim].
  at::Tensor heads(const at::Tensor& from, std::int64_t first_column, std::int64_t count) const;

  const DraftGeometry geometry_;
  TileOps& ops_;
  Scratch& scratch_;
};

}  // namespace levada::nn
