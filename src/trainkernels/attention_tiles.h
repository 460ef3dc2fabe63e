// What: AttentionTiles, the work lists of one-kernel attention: which rows a tile of queries has and which keys it needs,
// which keys a tile of keys has and which rows see them.
// Owner: the batch they were made for.
// Thread: immutable.
// Invariant: every row is in one query tile; every key, context or block row, in one key tile; a tile belongs to one
// sample. Ranges may hold more than is seen, never less.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainkernels/fused.h"

namespace levada::trainkernels {

// A sample's rows of a batch.
struct TileSource {
  std::int64_t first_key = 0, keys = 0;
  std::int64_t first_row = 0, rows = 0;
};

struct AttentionTiles {
  std::vector<QueryTile> queries;
  std::vector<KeyTile> keys;
};

// Samples consist of whole blocks. begin, end: per row of the batch, the context keys it sees; both ascend within a block.
AttentionTiles make_attention_tiles(std::span<const TileSource> samples, std::int64_t block,
                                    std::span<const std::int64_t> begin, std::span<const std::int64_t> end);

}  // namespace levada::trainkernels
