#include "nn/eagle_batch.h"

#include <ATen/ops/index_select.h>

#include <algorithm>

#include "nn/angle_table.h"
#include "nn/upload.h"

namespace levada::nn {
namespace {

// Positions and tokens of rows or keys, as `step` wants them.
struct FedRows {
  std::vector<std::int64_t> ids, positions;
  void add(const EagleSequence& sequence, std::int64_t token, std::int64_t step) {
    const auto next = static_cast<std::size_t>(token + step + 1);
    ids.push_back(next < sequence.input_ids.size() ? sequence.input_ids[next] : 0);
    positions.push_back(token + step);
  }
};

// Token t is rolled out if one of its steps predicts from a supervised position.
std::vector<std::int64_t> rolled_out(std::span<const std::int64_t> mask, std::int64_t steps) {
  std::vector<std::int64_t> tokens;
  const auto count = static_cast<std::int64_t>(mask.size());
  for (std::int64_t t = 0; t + 1 < count; ++t) {
    const auto first = mask.begin() + t, end = mask.begin() + std::min(t + steps, count - 1);
    if (std::any_of(first, end, [](std::int64_t m) { return m > 0; })) tokens.push_back(t);
  }
  return tokens;
}

}  // namespace

EagleBatch make_eagle_batch(const EagleGeometry& geometry, std::span<const EagleSequence> sequences, at::Device place) {
  EagleBatch batch;
  batch.steps = geometry.steps;
  std::vector<FedRows> of_rows(static_cast<std::size_t>(geometry.steps));
  FedRows of_keys;
  std::vector<std::int64_t> begin, end;
  std::int64_t longest = 0;
  for (const EagleSequence& sequence : sequences) {
    const std::int64_t first = batch.keys(), tokens = static_cast<std::int64_t>(sequence.input_ids.size());
    const std::vector<std::int64_t> rows = rolled_out(sequence.loss_mask, geometry.steps);
    batch.parts.push_back({first, tokens, batch.row_count(), static_cast<std::int64_t>(rows.size())});
    longest = std::max(longest, tokens);
    for (std::int64_t t = 0; t < tokens; ++t) {
      of_keys.add(sequence, t, 0);
      if (t > 0 && sequence.loss_mask[static_cast<std::size_t>(t - 1)] > 0) batch.teachers.push_back(first + t);
    }
    for (std::int64_t t : rows) {
      batch.row_keys.push_back(first + t);
      begin.push_back(first);
      end.push_back(first + t + 1);
      for (std::int64_t step = 0; step < geometry.steps; ++step) {
        of_rows[static_cast<std::size_t>(step)].add(sequence, t, step);
      }
    }
  }
  const at::Tensor table = angle_table(longest + geometry.steps, geometry.head_dim, geometry.rope_theta, place);
  auto angles = [&](const FedRows& inputs) {
    return at::index_select(table, 0, upload<std::int64_t>(inputs.positions, place));
  };
  batch.rows = upload<std::int64_t>(batch.row_keys, place);
  batch.key_begin = upload<std::int64_t>(begin, place);
  batch.key_end = upload<std::int64_t>(end, place);
  batch.key_ids = upload<std::int64_t>(of_keys.ids, place);
  batch.key_angles = angles(of_keys);
  for (const FedRows& inputs : of_rows) {
    batch.row_angles.push_back(angles(inputs));
    if (batch.row_angles.size() > 1) batch.row_ids.push_back(upload<std::int64_t>(inputs.ids, place));
  }
  return batch;
}

}  // namespace levada::nn
