#include "trainkernels/attention_tiles.h"

#include <algorithm>

namespace levada::trainkernels {
namespace {

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

// The rows of whole blocks around [first, last).
std::pair<std::int64_t, std::int64_t> whole_blocks(std::int64_t first, std::int64_t last, std::int64_t block) {
  return {first / block * block, (last + block - 1) / block * block};
}

QueryTile query_tile(std::int64_t first, std::int64_t last, std::int64_t block, std::span<const std::int64_t> begin,
                     std::span<const std::int64_t> end) {
  QueryTile tile;
  tile.first_row = narrow(first);
  tile.rows = narrow(last - first);
  std::int64_t from = begin[static_cast<std::size_t>(first)], to = from;
  for (std::int64_t r = first; r < last; ++r) {
    const auto at = static_cast<std::size_t>(r);
    from = std::min(from, begin[at]);
    to = std::max(to, end[at]);
  }
  tile.key_begin[0] = narrow(from);
  tile.key_end[0] = narrow(to);
  const auto own = whole_blocks(first, last, block);
  tile.key_begin[1] = narrow(own.first);
  tile.key_end[1] = narrow(own.second);
  return tile;
}

// The first and last block of the sample with a row that sees any of context keys [first, last). A block's rows together
// see from where its first row begins to where its last one ends.
KeyTile context_tile(const TileSource& sample, std::int64_t first, std::int64_t last, std::int64_t block,
                     std::span<const std::int64_t> begin, std::span<const std::int64_t> end) {
  KeyTile tile;
  tile.first_key = narrow(first);
  tile.keys = narrow(last - first);
  for (std::int64_t r = sample.first_row; r < sample.first_row + sample.rows; r += block) {
    const std::int64_t from = begin[static_cast<std::size_t>(r)], to = end[static_cast<std::size_t>(r + block - 1)];
    if (std::max(from, first) >= std::min(to, last)) continue;
    if (tile.row_end == 0) tile.row_begin = narrow(r);
    tile.row_end = narrow(r + block);
  }
  return tile;
}

}  // namespace

AttentionTiles make_attention_tiles(std::span<const TileSource> samples, std::int64_t block,
                                    std::span<const std::int64_t> begin, std::span<const std::int64_t> end) {
  AttentionTiles tiles;
  // Whole blocks where they fit: then the tile's own keys are no more than its rows.
  const std::int64_t step = block <= kTileRows ? kTileRows / block * block : kTileRows;
  for (const TileSource& sample : samples) {
    for (std::int64_t at = 0; at < sample.rows; at += step) {
      const std::int64_t first = sample.first_row + at, last = first + std::min(step, sample.rows - at);
      tiles.queries.push_back(query_tile(first, last, block, begin, end));
      const auto own = whole_blocks(first, last, block);
      tiles.keys.push_back({1, narrow(first), narrow(last - first), narrow(own.first), narrow(own.second)});
    }
    for (std::int64_t at = 0; at < sample.keys; at += kTileRows) {
      const std::int64_t first = sample.first_key + at;
      tiles.keys.push_back(
          context_tile(sample, first, first + std::min<std::int64_t>(kTileRows, sample.keys - at), block, begin, end));
    }
  }
  // The longest first, so that none is left over at the end.
  std::stable_sort(tiles.keys.begin(), tiles.keys.end(), [](const KeyTile& a, const KeyTile& b) {
    return a.row_end - a.row_begin > b.row_end - b.row_begin;
  });
  return tiles;
}

}  // namespace levada::trainkernels
