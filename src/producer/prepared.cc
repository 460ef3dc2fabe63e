#include "producer/prepared.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace levada::producer {

TrimVerdict trim(PreparedSample& sample, const SampleBounds& bounds) {
  LEVADA_CHECK(sample.input_ids.size() == sample.loss_mask.size(), "every token has its mask entry");
  std::size_t length = std::min(sample.input_ids.size(), static_cast<std::size_t>(bounds.max_length));
  if (bounds.max_supervised > 0) {
    std::int64_t supervised = 0;
    for (std::size_t i = 0; i < length; ++i) {
      supervised += sample.loss_mask[i];
      if (supervised == bounds.max_supervised) length = i + 1;
    }
  }
  sample.input_ids.resize(length);
  sample.loss_mask.resize(length);
  if (std::accumulate(sample.loss_mask.begin(), sample.loss_mask.end(), std::int64_t{0}) < 2) {
    return TrimVerdict::kTooFewSupervised;
  }
  const auto neighbours = std::adjacent_find(sample.loss_mask.begin(), sample.loss_mask.end(),
                                             [](std::uint8_t a, std::uint8_t b) { return a != 0 && b != 0; });
  return neighbours == sample.loss_mask.end() ? TrimVerdict::kNoNeighbours : TrimVerdict::kKept;
}

}  // namespace levada::producer
