// What: BlockAttention, attention of draft blocks to their sample's context and to themselves, forward and backward.
// Owner: the draft; scratch is the trainer's.
// Thread: the trainer's.
// Invariant: computed tile by tile: a few neighbouring blocks against the range of context keys that any of them sees, and
// each block against itself, with one softmax over both. No mask and no score outlives its tile; backward computes scores
// again from the saved log-sum-exp. So memory is O(rows + keys), whatever their product.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/draft_batch.h"
#include "nn/draft_ops.h"
#include "nn/scratch.h"

namespace levada::nn {

class BlockAttention {
 public:
  BlockAttention(const DraftGeometry& geometry, DraftOps& ops, Scratch& scratch)
      : geometry_(geometry), ops_(ops), scratch_(scratch) {}

  // qkv [rows, q + 2 kv] and context_kv [keys, 2 kv] are projections before norm and rotation; out [rows, q];
  // lse f32 [rows * heads] is for backward().
  void forward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const at::Tensor& qkv,
               const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& lse);

  // Gradients of qkv and context_kv, given out and its gradient. dw's q_norm and k_norm +=.
  void backward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const DraftLayerTensors& dw,
                const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& dout,
                const at::Tensor& lse, const at::Tensor& dqkv, const at::Tensor& dcontext_kv);

  // Keys after norm and rotation, values: [kv_heads, keys, head_dim]. What forward() attends to; for comparison.
  struct Context {
    at::Tensor k, v;
  };
  Context project_context(const DraftBatch& batch, const DraftLayerTensors& w, const at::Tensor& context_kv);

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

  const DraftGeometry& geometry_;
  DraftOps& ops_;
  Scratch& scratch_;
};

}  // namespace levada::nn
