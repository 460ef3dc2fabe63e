#include "capture/capture.h"

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"

namespace levada::capture {

namespace {

void store_row(const float* row, std::int64_t count, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kF32: std::memcpy(out, row, static_cast<std::size_t>(count) * sizeof(float)); return;
    case DType::kBF16: {
      auto* values = reinterpret_cast<kernels::Bf16*>(out);
      for (std::int64_t i = 0; i < count; ++i) values[i] = kernels::to_bf16(row[i]);
      return;
    }
    case DType::kF16: {
      auto* values = reinterpret_cast<_Float16*>(out);
      for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<_Float16>(row[i]);
      return;
    }
    default: LEVADA_CHECK(false, "check() lets only float features pass");
  }
}

}  // namespace

Capture::Capture(core::CaptureId id, SampleSpec spec, std::int32_t tokens, std::int32_t hidden_size,
                 std::vector<store::Slot> slots)
    : id_(id), spec_(std::move(spec)), tokens_(tokens), hidden_size_(hidden_size), slots_(std::move(slots)) {
  LEVADA_CHECK(slots_.size() == spec_.features.size() + spec_.passthrough.size(), "a slot for every tensor");
  for (std::size_t f = 0; f < spec_.features.size(); ++f) {
    std::int64_t offset = 0;
    for (const std::int32_t state : spec_.features[f].states) {
      columns_[state].push_back({f, offset});
      rows_[state] = 0;
      offset += hidden_size_;
    }
  }
  for (std::size_t p = 0; p < spec_.passthrough.size(); ++p) {
    const std::vector<std::byte>& bytes = spec_.passthrough[p].bytes;
    std::memcpy(slots_[spec_.features.size() + p].bytes().data(), bytes.data(), bytes.size());
  }
}

std::int64_t Capture::width_elements(const FeatureSpec& feature) const {
  return static_cast<std::int64_t>(feature.states.size()) * hidden_size_;
}

void Capture::write(const core::TokenRange& range, std::int32_t state, const device::TensorView& rows) {
  LEVADA_CHECK(rows.rank == 2 && rows.dtype == DType::kF32 && rows.place == device::DeviceKind::kCpu, "host f32 rows");
  LEVADA_CHECK(rows.shape[0] == range.count && rows.shape[1] == hidden_size_, "rows travel with their range");
  const auto columns = columns_.find(state);
  if (columns == columns_.end()) return;
  const std::int32_t end = std::min(range.end(), tokens_);
  for (const Column& column : columns->second) {
    const FeatureSpec& feature = spec_.features[column.feature];
    const auto element = static_cast<std::int64_t>(bytes_of(feature.dtype));
    std::byte* tensor = slots_[column.feature].bytes().data();
    for (std::int32_t token = range.first; token < end; ++token) {
      const float* row = rows.as<float>() + (token - range.first) * rows.strides[0];
      store_row(row, hidden_size_, feature.dtype,
                tensor + (token * width_elements(feature) + column.offset_elements) * element);
    }
  }
  std::lock_guard lock(mutex_);
  std::int32_t& present = rows_[state];
  if (range.first <= present) present = std::max(present, end);
}

Status Capture::complete() const {
  std::lock_guard lock(mutex_);
  for (const auto& [state, rows] : rows_) {
    if (rows == tokens_) continue;
    const std::string name = state == kFinalNorm ? "the final norm" : "layer " + std::to_string(state);
    return internal_error("captured " + std::to_string(rows) + " of " + std::to_string(tokens_) + " rows of " + name);
  }
  return {};
}

Result<Published> Capture::seal(std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(complete());
  Published published{
      spec_.store_id, spec_.sample_id, static_cast<std::uint32_t>(spec_.generation), incarnation, {}, {}};
  const auto seal_one = [&](std::size_t slot, const std::string& name, DType dtype,
                            std::vector<std::int64_t> shape) -> Status {
    LEVADA_ASSIGN_OR_RETURN(const store::ObjectInfo info, slots_[slot].seal());
    published.tensors.push_back({name, dtype, std::move(shape), info.checksum});
    return {};
  };
  for (std::size_t f = 0; f < spec_.features.size(); ++f) {
    const FeatureSpec& feature = spec_.features[f];
    if (published.aux_layer_ids.empty() && feature.states.front() != kFinalNorm)
      published.aux_layer_ids = feature.states;
    LEVADA_RETURN_IF_ERROR(seal_one(f, feature.name, feature.dtype, {1, tokens_, width_elements(feature)}));
  }
  for (std::size_t p = 0; p < spec_.passthrough.size(); ++p) {
    const PassthroughSpec& tensor = spec_.passthrough[p];
    LEVADA_RETURN_IF_ERROR(seal_one(spec_.features.size() + p, tensor.name, tensor.dtype, tensor.shape));
  }
  return published;
}

}  // namespace levada::capture
