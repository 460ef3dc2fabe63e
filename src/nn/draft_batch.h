// What: DraftBatch, the geometry of one micro-step: whose context lies where, which blocks hang on which anchors, and what
// each block row may see. visible_keys() is the one place that says what a draft sees.
// Owner: the step.
// Thread: the trainer's.
// Invariant: contexts of several samples lie one after the other without padding and end before their last anchor, since
// nothing later is ever seen; a block belongs to one sample; blocks of a sample ascend by anchor. Positions are absolute.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/draft_layout.h"

namespace levada::nn {

// What slot `offset` of the block at `anchor` sees: context tokens [begin, end) and slots [0, own_end) of its own block.
struct Visible {
  std::int64_t begin = 0, end = 0, own_end = 0;
};

// `window` 0: everything strictly before the anchor and the whole block, both directions. Else the last window - 1
// positions before the slot's own, and the block up to the slot. The anchor's own feature is hidden always: its token
// enters through the embedding.
Visible visible_keys(std::int64_t anchor, std::int64_t offset, std::int64_t block, std::int64_t window);

// A sample's part of a batch.
struct DraftSequence {
  std::vector<std::int64_t> anchors;                                             // ascending
  std::span<const std::int64_t> input_ids;                                       // tokens, for the anchors' embeddings
  std::int64_t context() const { return anchors.empty() ? 0 : anchors.back(); }  // context rows that anybody sees
};

struct DraftBatch {
  std::int64_t block = 0;  // slots of a block
  struct Part {
    std::int64_t first_key = 0, keys = 0;  // rows of the context
    std::int64_t first_block = 0, blocks = 0;
  };
  std::vector<Part> parts;            // one per sequence that has blocks
  std::vector<std::int64_t> anchors;  // per block

  at::Tensor block_ids;               // int64 [rows]: anchor token, then mask tokens
  at::Tensor row_angles, key_angles;  // f32 [rows | keys, head_dim]: half cosines, half sines
  // int64 [rows]; [0] of full layers, [1] of sliding ones. Keys count from the batch's first context row.
  at::Tensor key_begin[2], key_end[2], own_end[2];
  std::vector<std::int64_t> host_begin[2], host_end[2];
  // int32 [tiles, ...]: trainkernels::QueryTile and KeyTile, trainkernels/attention_tiles.h.
  at::Tensor query_tiles[2], key_tiles[2];

  std::int64_t blocks() const { return static_cast<std::int64_t>(anchors.size()); }
  std::int64_t rows() const { return blocks() * block; }
  std::int64_t keys() const { return parts.empty() ? 0 : parts.back().first_key + parts.back().keys; }
};

// REQUIRES: at least one anchor. Angles are computed in float32 whatever the weights' type.
DraftBatch make_draft_batch(const DraftGeometry& geometry, std::span<const DraftSequence> sequences, std::int64_t block,
                            std::int64_t mask_token, at::Device place);

}  // namespace levada::nn
