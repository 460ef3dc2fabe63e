// What: the form of the scales that float8 KV planes have for each page, one for its keys and one for its values.
// Owner: none, constants.
// Thread: any.
// Invariant: a page's scales follow from its first token alone, so that they don't depend on how a prompt was cut into
// steps, and no number that is stored has to be changed when more tokens come.
// Format: f32 [pages, kPageScales]: k, v, two unused.
#pragma once

#include <cstdint>

namespace levada::kernels {

// 16 bytes a page, so that they move in packs as all planes do (kernels/cuda/pages.h).
inline constexpr std::int64_t kPageScales = 4;
// What the largest number of a page's first token becomes. It lies in the middle of what e4m3 holds: later tokens may be
// 64 times as large (448), and numbers down to a 448th of it keep all three bits of their fraction (2^-6).
inline constexpr float kFirstTokenLargest = 7;
// First tokens that are smaller, or not finite, get the scale 1.
inline constexpr float kLeastFirstToken = 1e-30f;

}  // namespace levada::kernels
