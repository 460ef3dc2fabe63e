#include "kernels/cuda/sampling.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampler_rows.h"

namespace levada::kernels::cuda {
namespace {

bool penalises(const SampleParams& params) {
  return params.frequency_penalty != 0 || params.presence_penalty != 0 || params.repetition_penalty != 1;
}

// Fills one step's pinned block.
class Packer {
 public:
  Packer(DeviceRow* rows, std::int32_t* ids, std::int64_t max_ids) : rows_(rows), ids_(ids), max_ids_(max_ids) {}

  bool add(const SamplerRow& from) {
    const SampleParams& p = from.params;
    DeviceRow row;
    row.seed = p.seed;
    row.position = p.position;
    row.temperature = p.temperature;
    row.top_k = p.top_k;
    row.top_p = p.top_p;
    row.min_p = p.min_p;
    row.frequency = p.frequency_penalty;
    row.presence = p.presence_penalty;
    row.repetition = p.repetition_penalty;
    bool fits = put(p.banned, row.banned) && put(p.bias_ids, row.bias_ids) && put(p.bias_values, row.bias_values) &&
                put(p.mask, row.mask);
    if (penalises(p)) {
      row.appended_row = from.appended_row;
      fits = fits && put(p.output_history, row.output) && put(p.prompt_history, row.prompt);
      row.table = {table_, 2 * (row.output.count + row.prompt.count + 1)};
      table_ += row.table.count;
    }
    *rows_++ = row;
    return fits;
  }
  void add_greedy() { *rows_++ = DeviceRow{}; }
  std::int64_t ids() const { return used_; }

 private:
  template <class T>
  bool put(std::span<const T> from, IdRange& range) {
    static_assert(sizeof(T) == sizeof(std::int32_t));
    if (used_ + static_cast<std::int64_t>(from.size()) > max_ids_) return false;
    range = {static_cast<std::int32_t>(used_), static_cast<std::int32_t>(from.size())};
    if (!from.empty()) std::memcpy(ids_ + used_, from.data(), from.size_bytes());
    used_ += range.count;
    return true;
  }
  DeviceRow* rows_;
  std::int32_t* ids_;
  std::int64_t max_ids_, used_ = 0;
  std::int32_t table_ = 0;
};

}  // namespace

std::size_t Sampler::ids_offset() const { return static_cast<std::size_t>(max_rows_) * sizeof(DeviceRow); }

Result<std::unique_ptr<Sampler>> Sampler::create(device::Device& device, std::int32_t max_rows, std::int64_t vocabulary,
                                                 std::int64_t max_ids) {
  LEVADA_RETURN_IF_ERROR(expect(vocabulary > 0 && vocabulary <= kMaxVocabulary && max_rows > 0, "sampler",
                                "a vocabulary of at most 262144 ids, and rows"));
  LEVADA_RETURN_IF_ERROR(expect(max_ids >= 0 && max_ids <= (1 << 28), "sampler", "at most 2^28 ids a step"));
  std::unique_ptr<Sampler> sampler(new Sampler(max_rows, vocabulary, max_ids));
  const std::size_t bytes = sampler->ids_offset() + static_cast<std::size_t>(max_ids) * sizeof(std::int32_t);
  const std::size_t entries = 2 * static_cast<std::size_t>(max_ids + max_rows);
  LEVADA_ASSIGN_OR_RETURN(sampler->device_, device.allocate(bytes));
  LEVADA_ASSIGN_OR_RETURN(sampler->table_, device.allocate(entries * sizeof(CountedId)));
  for (Block& block : sampler->blocks_) {
    LEVADA_ASSIGN_OR_RETURN(block.pinned, device.allocate_pinned(bytes));
    LEVADA_ASSIGN_OR_RETURN(block.sent, device.make_event());
  }
  return sampler;
}

Status Sampler::upload(std::span<const SamplerRow> rows, std::int32_t padded_rows, device::Stream& stream) {
  if (padded_rows > max_rows_ || rows.size() > static_cast<std::size_t>(padded_rows)) {
    return resource_exhausted(
        "sampler: " + std::to_string(std::max<std::size_t>(rows.size(), static_cast<std::size_t>(padded_rows))) +
        " rows; there is room for " + std::to_string(max_rows_));
  }
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  if (block.sent->recorded()) LEVADA_RETURN_IF_ERROR(block.sent->wait());

  auto* const host = static_cast<std::byte*>(block.pinned->data());
  Packer packer(reinterpret_cast<DeviceRow*>(host), reinterpret_cast<std::int32_t*>(host + ids_offset()), max_ids_);
  for (const SamplerRow& row : rows) {
    if (!packer.add(row)) {
      return resource_exhausted("sampler: histories, banned ids, biases and masks of this step need more than " +
                                std::to_string(max_ids_) + " words");
    }
  }
  for (auto i = static_cast<std::int32_t>(rows.size()); i < padded_rows; ++i) packer.add_greedy();

  auto* const to = static_cast<std::byte*>(device_->data());
  LEVADA_RETURN_IF_ERROR(stream.copy(to, host, static_cast<std::size_t>(padded_rows) * sizeof(DeviceRow)));
  if (packer.ids() > 0) {
    LEVADA_RETURN_IF_ERROR(stream.copy(to + ids_offset(), host + ids_offset(),
                                       static_cast<std::size_t>(packer.ids()) * sizeof(std::int32_t)));
  }
  return stream.record(*block.sent);
}

Status Sampler::run(const TensorView& logits, const std::int32_t* input_ids, const TensorView& tokens,
                    cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(logits.rank == 2 && logits.dtype == DType::kF32 && logits.strides[1] == 1 &&
                                    logits.place == device::DeviceKind::kCuda && logits.shape[1] == vocabulary_ &&
                                    logits.shape[0] <= max_rows_,
                                "sample", "logits f32 [R, V], R at most the sampler's rows"));
  LEVADA_RETURN_IF_ERROR(expect(is_vector(tokens, DType::kI32, logits.shape[0]), "sample", "tokens i32 [R]"));
  if (logits.shape[0] == 0) return {};
  const auto* const base = static_cast<const std::byte*>(device_->data());
  return launch_sampling({.logits = logits.as<float>(),
                          .stride = logits.strides[0],
                          .vocabulary = static_cast<std::int32_t>(vocabulary_),
                          .rows = reinterpret_cast<const DeviceRow*>(base),
                          .ids = reinterpret_cast<const std::int32_t*>(base + ids_offset()),
                          .input_ids = input_ids,
                          .table = static_cast<CountedId*>(table_->data()),
                          .tokens = tokens.as<std::int32_t>()},
                         static_cast<unsigned>(logits.shape[0]), stream);
}

}  // namespace levada::kernels::cuda
