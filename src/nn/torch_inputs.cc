#include "nn/torch_inputs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace levada::nn {
namespace {

// Integers collected on the host; each put() answers where in the uploaded tensor they will lie.
class Upload {
 public:
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  void add(std::int64_t value) { values_.push_back(value); }
  void send(at::Device place) {
    tensor_ = at::from_blob(values_.data(), {size()}, at::TensorOptions().dtype(at::kLong)).to(place, false, true);
  }
  at::Tensor part(std::int64_t first, std::int64_t count) const { return tensor_.narrow(0, first, count); }

 private:
  std::vector<std::int64_t> values_;
  at::Tensor tensor_;
};

std::int64_t slot(const kernels::PagedBatch& batch, std::size_t slice, std::int64_t position) {
  const std::int64_t page_size = batch.page_size;
  const auto entry = static_cast<std::size_t>(batch.block_table_first[slice] + position / page_size);
  return batch.block_tables[entry] * page_size + position % page_size;
}

// Where the pieces of one step lie in its upload.
struct Places {
  std::int64_t ids = 0, positions = 0, slots = 0, single_rows = 0, single_lengths = 0, single_slots = 0;
  std::vector<std::int64_t> chunk_slots;
};

}  // namespace

std::unique_ptr<TorchInputs> make_torch_inputs(const StepShape& step, const at::Tensor& cos_sin) {
  const kernels::PagedBatch& batch = step.batch;
  const auto rows = static_cast<std::int64_t>(step.ids.size());
  std::vector<std::size_t> singles;
  std::int64_t longest = 0;
  auto inputs = std::make_unique<TorchInputs>();
  Upload upload;
  Places places;

  for (std::int32_t id : step.ids) upload.add(id);
  places.positions = upload.size();
  for (std::int32_t position : step.positions) upload.add(position);
  places.slots = upload.size();
  // Rows of a slice are consecutive and slices cover all rows in order of their rows.
  std::vector<std::int64_t> row_slots(step.ids.size());
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    for (std::int32_t i = 0; i < batch.rows[s]; ++i) {
      row_slots[static_cast<std::size_t>(batch.first_row[s] + i)] = slot(batch, s, batch.context[s] + i);
    }
  }
  for (std::int64_t s : row_slots) upload.add(s);
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    const std::int64_t length = batch.context[s] + batch.rows[s];
    if (batch.rows[s] == 1) {
      singles.push_back(s);
      longest = std::max(longest, length);
      continue;
    }
    TorchInputs::Chunk chunk;
    chunk.first_row = batch.first_row[s];
    chunk.rows = batch.rows[s];
    inputs->chunks.push_back(chunk);
    places.chunk_slots.push_back(upload.size());
    for (std::int64_t p = 0; p < length; ++p) upload.add(slot(batch, s, p));
  }
  places.single_rows = upload.size();
  for (std::size_t s : singles) upload.add(batch.first_row[s]);
  places.single_lengths = upload.size();
  for (std::size_t s : singles) upload.add(batch.context[s] + 1);
  places.single_slots = upload.size();
  for (std::size_t s : singles) {
    for (std::int64_t p = 0; p < longest; ++p) upload.add(slot(batch, s, std::min<std::int64_t>(p, batch.context[s])));
  }
  upload.send(cos_sin.device());

  inputs->ids = upload.part(0, rows);
  inputs->slots = upload.part(places.slots, rows);
  const at::Tensor angles = cos_sin.index_select(0, upload.part(places.positions, rows)).unsqueeze(1);
  const std::int64_t half = cos_sin.size(1) / 2;
  inputs->cos = angles.narrow(2, 0, half);
  inputs->sin = angles.narrow(2, half, half);
  const auto options = at::TensorOptions().dtype(at::kLong).device(cos_sin.device());
  std::size_t c = 0;
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    if (batch.rows[s] == 1) continue;
    TorchInputs::Chunk& chunk = inputs->chunks[c];
    const std::int64_t length = batch.context[s] + batch.rows[s];
    chunk.slots = upload.part(places.chunk_slots[c++], length);
    if (batch.context[s] == 0) continue;
    const at::Tensor query = at::arange(batch.context[s], length, options).unsqueeze(1);
    chunk.mask = at::arange(length, options).unsqueeze(0).le(query);
  }
  if (!singles.empty()) {
    const auto count = static_cast<std::int64_t>(singles.size());
    TorchInputs::Single& single = inputs->single.emplace();
    single.rows = upload.part(places.single_rows, count);
    single.slots = upload.part(places.single_slots, count * longest);
    single.longest = longest;
    const at::Tensor lengths = upload.part(places.single_lengths, count).unsqueeze(1);
    single.mask = at::arange(longest, options).unsqueeze(0).lt(lengths).view({count, 1, 1, longest});
  }
  return inputs;
}

}  // namespace levada::nn
