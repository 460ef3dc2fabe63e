// What: EagleAttention, attention of an EAGLE-3 rollout, step by step, forward and backward: a row sees the keys of step 0 up
// to its own token and, of the later steps, its own alone.
// Owner: the draft; operations and scratch are the trainer's.
// Thread: the trainer's.
// Invariant: a row has one softmax over both. Scores exist for a tile of rows at a time, against the keys any of them sees, and
// backward computes them again from the saved log-sum-exp: memory is O(rows * steps + keys).
#pragma once

#include "nn/draft_ops.h"
#include "nn/eagle_batch.h"

namespace levada::nn {

class EagleAttention {
 public:
  EagleAttention(const EagleGeometry& geometry, TileOps& ops, Scratch& scratch)
      : geometry_(geometry), ops_(ops), scratch_(scratch) {}

  // Keys and values of step 0 from kv [keys, 2 kv] before rotation, strided in the row; then of steps 1, 2, .. [rows, 2 kv].
  void begin(const EagleBatch& batch, const at::Tensor& kv);
  void add(const EagleBatch& batch, std::int64_t step, const at::Tensor& kv);
  // q [rows, q width] before rotation, strided in the row; out [rows, q width]; lse f32 [rows * heads] is for backward().
  void forward(const EagleBatch& batch, std::int64_t step, const at::Tensor& q, const at::Tensor& out,
               const at::Tensor& lse);

  // The way back, from the last step to the first: gradients of keys and values are summed until they are taken.
  void begin_backward();
  void backward(const EagleBatch& batch, std::int64_t step, const at::Tensor& q, const at::Tensor& out,
                const at::Tensor& dout, const at::Tensor& lse, const at::Tensor& dq);
  // Gradient of what add(step), or begin() for step 0, was given.
  void take(const EagleBatch& batch, std::int64_t step, const at::Tensor& dkv);

 private:
  struct Tile {
    std::int64_t first_row = 0, rows = 0;
    std::int64_t first_key = 0, keys = 0;
  };
  // A tile's queries, its rows' own keys and values of later steps, and scores; or the gradients of all these.
  struct Rows {
    at::Tensor q, k, v;  // [groups, rows, per group, d], [groups, rows, step, d]
    at::Tensor context, own;
  };
  std::vector<Tile> tiles(const EagleBatch& batch) const;
  Rows make_rows(const char* name, const Tile& tile, std::int64_t step);
  Rows load(const EagleBatch& batch, std::int64_t step, const Tile& tile, const at::Tensor& q);
  ScoreTile score_tile(const EagleBatch& batch, std::int64_t step, const Tile& tile);
  void backward_tile(std::int64_t step, const Tile& tile, const ScoreTile& scores, const Rows& rows, const Rows& grads,
                     const at::Tensor& lse, const at::Tensor& delta, const at::Tensor& dout);
  // Rows of a projection as [rows, heads, head_dim].
  at::Tensor heads(const at::Tensor& from, std::int64_t first_column, std::int64_t count) const;

  const EagleGeometry geometry_;
  TileOps& ops_;
  Scratch& scratch_;
  at::Tensor keys_, values_, dkeys_, dvalues_;                  // [groups, keys, d]
  at::Tensor own_keys_, own_values_, down_keys_, down_values_;  // [groups, rows, steps - 1, d]
};

}  // namespace levada::nn
