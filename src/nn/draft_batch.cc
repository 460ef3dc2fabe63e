#include "nn/draft_batch.h"

#include <ATen/ops/index_select.h>

#include <algorithm>

#include "nn/angle_table.h"
#include "nn/upload.h"
#include "trainkernels/attention_tiles.h"

namespace levada::nn {
namespace {

// Structs of int32 fields.
template <class Tile>
at::Tensor upload_tiles(const std::vector<Tile>& tiles, at::Device place) {
  constexpr std::size_t kFields = sizeof(Tile) / sizeof(std::int32_t);
  const auto* first = reinterpret_cast<const std::int32_t*>(tiles.data());
  return upload<std::int32_t>(std::span(first, tiles.size() * kFields), place)
      .view({static_cast<std::int64_t>(tiles.size()), static_cast<std::int64_t>(kFields)});
}

void set_tiles(DraftBatch& batch, int kind, at::Device place) {
  std::vector<trainkernels::TileSource> samples;
  for (const DraftBatch::Part& part : batch.parts) {
    samples.push_back({part.first_key, part.keys, part.first_block * batch.block, part.blocks * batch.block});
  }
  const trainkernels::AttentionTiles tiles =
      trainkernels::make_attention_tiles(samples, batch.block, batch.host_begin[kind], batch.host_end[kind]);
  batch.query_tiles[kind] = upload_tiles(tiles.queries, place);
  batch.key_tiles[kind] = upload_tiles(tiles.keys, place);
}

std::int64_t window_of(const DraftGeometry& geometry) {
  for (std::int64_t window : geometry.windows) {
    if (window > 0) return window;
  }
  return 0;
}

void set_visibility(const DraftGeometry& geometry, DraftBatch& batch, at::Device place) {
  const std::int64_t window = window_of(geometry);
  for (int kind = 0; kind < (window > 0 ? 2 : 1); ++kind) {
    std::vector<std::int64_t> own;
    for (const DraftBatch::Part& part : batch.parts) {
      for (std::int64_t b = part.first_block; b < part.first_block + part.blocks; ++b) {
        for (std::int64_t offset = 0; offset < batch.block; ++offset) {
          const Visible seen =
              visible_keys(batch.anchors[static_cast<std::size_t>(b)], offset, batch.block, kind == 0 ? 0 : window);
          batch.host_begin[kind].push_back(part.first_key + seen.begin);
          batch.host_end[kind].push_back(part.first_key + seen.end);
          own.push_back(seen.own_end);
        }
      }
    }
    batch.key_begin[kind] = upload<std::int64_t>(batch.host_begin[kind], place);
    batch.key_end[kind] = upload<std::int64_t>(batch.host_end[kind], place);
    batch.own_end[kind] = upload<std::int64_t>(own, place);
    set_tiles(batch, kind, place);
  }
}

}  // namespace

Visible visible_keys(std::int64_t anchor, std::int64_t offset, std::int64_t block, std::int64_t window) {
  if (window == 0) return {0, anchor, block};
  return {std::min(anchor, std::max<std::int64_t>(0, anchor + offset - (window - 1))), anchor, offset + 1};
}

DraftBatch make_draft_batch(const DraftGeometry& geometry, std::span<const DraftSequence> sequences, std::int64_t block,
                            std::int64_t mask_token, at::Device place) {
  DraftBatch batch;
  batch.block = block;
  std::vector<std::int64_t> ids, row_positions, key_positions;
  for (const DraftSequence& sequence : sequences) {
    if (sequence.anchors.empty()) continue;
    batch.parts.push_back(
        {batch.keys(), sequence.context(), batch.blocks(), static_cast<std::int64_t>(sequence.anchors.size())});
    for (std::int64_t t = 0; t < sequence.context(); ++t) key_positions.push_back(t);
    for (std::int64_t anchor : sequence.anchors) {
      batch.anchors.push_back(anchor);
      for (std::int64_t offset = 0; offset < block; ++offset) {
        ids.push_back(offset == 0 ? sequence.input_ids[static_cast<std::size_t>(anchor)] : mask_token);
        row_positions.push_back(anchor + offset);
      }
    }
  }
  batch.block_ids = upload<std::int64_t>(ids, place);
  const std::int64_t highest = *std::max_element(row_positions.begin(), row_positions.end());
  const at::Tensor table = angle_table(highest + 1, geometry.head_dim, geometry.rope_theta, place);
  batch.row_angles = at::index_select(table, 0, upload<std::int64_t>(row_positions, place));
  batch.key_angles = at::index_select(table, 0, upload<std::int64_t>(key_positions, place));
  set_visibility(geometry, batch, place);
  return batch;
}

}  // namespace levada::nn
