// What: which positions of a sample become anchors of blocks, and the counter-based random numbers that choose them.
// Owner: none.
// Thread: any.
// Invariant: the numbers depend on (seed, sample id, epoch, position) alone: neither on the batch, nor its padding, nor the
// rank, nor what was drawn before.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace levada::train {

// Positions p where p and p + 1 are supervised: a block there has something to draft.
std::vector<std::int64_t> eligible_anchors(std::span<const std::int64_t> loss_mask);

// The `limit` eligible positions with the smallest uniforms (uniforms[p] belongs to position p), ascending.
// REQUIRES: a uniform for each position but the last.
std::vector<std::int64_t> pick_anchors(std::span<const std::int64_t> loss_mask, std::span<const float> uniforms,
                                       std::int64_t limit);

// A uniform in [0, 1) for each of `count` positions.
std::vector<float> anchor_uniforms(std::uint64_t seed, std::string_view sample_id, std::uint32_t epoch,
                                   std::int64_t count);

}  // namespace levada::train
