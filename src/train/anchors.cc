#include "train/anchors.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "kernels/philox.h"

namespace levada::train {

std::vector<std::int64_t> eligible_anchors(std::span<const std::int64_t> loss_mask) {
  std::vector<std::int64_t> eligible;
  for (std::size_t p = 0; p + 1 < loss_mask.size(); ++p) {
    if (loss_mask[p] > 0 && loss_mask[p + 1] > 0) eligible.push_back(static_cast<std::int64_t>(p));
  }
  return eligible;
}

std::vector<std::int64_t> pick_anchors(std::span<const std::int64_t> loss_mask, std::span<const float> uniforms,
                                       std::int64_t limit) {
  LEVADA_CHECK(uniforms.size() + 1 >= loss_mask.size(), "every position but the last needs a number");
  std::vector<std::int64_t> chosen = eligible_anchors(loss_mask);
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::int64_t a, std::int64_t b) {
    return uniforms[static_cast<std::size_t>(a)] < uniforms[static_cast<std::size_t>(b)];
  });
  chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(limit)));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<float> anchor_uniforms(std::uint64_t seed, std::string_view sample_id, std::uint32_t epoch,
                                   std::int64_t count) {
  const std::uint64_t sample = hash64(std::as_bytes(std::span(sample_id)));
  std::vector<float> uniforms;
  uniforms.reserve(static_cast<std::size_t>(count) + 3);
  for (std::uint32_t quad = 0; static_cast<std::int64_t>(uniforms.size()) < count; ++quad) {
    const auto words =
        kernels::philox({quad, epoch, static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)},
                        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::uint32_t word : words) uniforms.push_back(static_cast<float>(word >> 8) * 0x1p-24f);
  }
  uniforms.resize(static_cast<std::size_t>(count));
  return uniforms;
}

}  // namespace levada::train
