#include "capture/capture.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace levada::capture {

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
}

Capture::~Capture() {
  // Their memory is somebody else's from here on.
  if (written_ != nullptr) [[maybe_unused]]
    const Status happened = written_->wait();
}

Status Capture::begin(store::Arena& arena) {
  arena_ = &arena;
  for (std::size_t p = 0; p < spec_.passthrough.size(); ++p)
    LEVADA_RETURN_IF_ERROR(arena.write(slots_[spec_.features.size() + p], spec_.passthrough[p].bytes));
  return {};
}

std::int64_t Capture::width_elements(const FeatureSpec& feature) const {
  return static_cast<std::int64_t>(feature.states.size()) * hidden_size_;
}

std::vector<RowCopy> Capture::copies_of(const core::TokenRange& range, std::int32_t state,
                                        const device::TensorView& rows) const {
  LEVADA_CHECK(rows.rank == 2 && rows.shape[0] == range.count && rows.shape[1] == hidden_size_ && rows.strides[1] == 1,
               "rows travel with their range");
  std::vector<RowCopy> copies;
  const auto columns = columns_.find(state);
  const std::int32_t count = std::min(range.end(), tokens_) - range.first;
  if (columns == columns_.end() || count <= 0) return copies;
  for (const Column& column : columns->second) {
    const FeatureSpec& feature = spec_.features[column.feature];
    const std::int64_t width = width_elements(feature);
    const std::int64_t first = range.first * width + column.offset_elements;
    std::byte* const to =
        slots_[column.feature].bytes().data() + first * static_cast<std::int64_t>(bytes_of(feature.dtype));
    copies.push_back({rows.data, to, rows.dtype, feature.dtype, count, hidden_size_, rows.strides[0], width});
  }
  return copies;
}

void Capture::note_rows(const core::TokenRange& range, std::int32_t state, Status copied) {
  const std::int32_t end = std::min(range.end(), tokens_);
  std::lock_guard lock(mutex_);
  if (copied_.ok()) copied_ = std::move(copied);
  const auto rows = rows_.find(state);
  if (rows != rows_.end() && range.first <= rows->second) rows->second = std::max(rows->second, end);
}

Status Capture::prepare_for_host_rows() {
  if (arena_->device() == nullptr || host_rows_stream_ != nullptr) return {};
  LEVADA_ASSIGN_OR_RETURN(host_rows_stream_, arena_->device()->make_stream());
  return {};
}

void Capture::write(const core::TokenRange& range, std::int32_t state, const device::TensorView& rows) {
  LEVADA_CHECK(rows.dtype == DType::kF32 && rows.place == device::DeviceKind::kCpu, "host f32 rows");
  Status copied = prepare_for_host_rows();
  if (!copied.ok()) return note_rows(range, state, std::move(copied));
  std::vector<std::byte> converted;
  for (RowCopy& copy : copies_of(range, state, rows)) {
    if (host_rows_stream_ != nullptr) {
      // Converted on the host, then moved row by row to their places on the device.
      const std::size_t row_bytes = static_cast<std::size_t>(copy.width) * bytes_of(copy.to_dtype);
      converted.resize(row_bytes * static_cast<std::size_t>(copy.rows));
      auto* to = static_cast<std::byte*>(std::exchange(copy.to, converted.data()));
      const auto step = std::exchange(copy.to_stride, copy.width) * static_cast<std::int64_t>(bytes_of(copy.to_dtype));
      copy_rows_now(copy);
      for (std::int64_t row = 0; row < copy.rows && copied.ok(); ++row, to += step)
        copied = host_rows_stream_->copy(to, converted.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
      const Status done = host_rows_stream_->synchronize();
      if (copied.ok()) copied = done;
    } else {
      copy_rows_now(copy);
    }
  }
  note_rows(range, state, std::move(copied));
}

void Capture::note_copied(const core::TokenRange& range, std::int32_t state, Status copied,
                          std::shared_ptr<device::Event> written) {
  note_rows(range, state, std::move(copied));
  if (written == nullptr) return;
  std::lock_guard lock(mutex_);
  written_ = std::move(written);
}

std::shared_ptr<device::Event> Capture::written() const {
  std::lock_guard lock(mutex_);
  return written_;
}

std::vector<std::span<const std::byte>> Capture::features() const {
  std::vector<std::span<const std::byte>> bytes;
  for (std::size_t f = 0; f < spec_.features.size(); ++f) bytes.push_back(slots_[f].bytes());
  return bytes;
}

Status Capture::complete() const {
  std::lock_guard lock(mutex_);
  LEVADA_RETURN_IF_ERROR(copied_);
  for (const auto& [state, rows] : rows_) {
    if (rows == tokens_) continue;
    const std::string name = state == kFinalNorm ? "the final norm" : "layer " + std::to_string(state);
    return internal_error("captured " + std::to_string(rows) + " of " + std::to_string(tokens_) + " rows of " + name);
  }
  return {};
}

Result<Published> Capture::seal(std::uint64_t incarnation, std::span<const std::uint64_t> measured) {
  LEVADA_RETURN_IF_ERROR(complete());
  Published published{
      spec_.store_id, spec_.sample_id, static_cast<std::uint32_t>(spec_.generation), incarnation, {}, {}, {}};
  const auto seal_one = [&](std::size_t slot, const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                            std::optional<std::uint64_t> checksum) -> Status {
    LEVADA_ASSIGN_OR_RETURN(const store::ObjectInfo info, slots_[slot].seal(checksum));
    published.tensors.push_back({name, dtype, std::move(shape), info.checksum});
    if (arena_->device() != nullptr)
      published.addresses.push_back(reinterpret_cast<std::uintptr_t>(slots_[slot].bytes().data()));
    return {};
  };
  for (std::size_t f = 0; f < spec_.features.size(); ++f) {
    const FeatureSpec& feature = spec_.features[f];
    if (published.aux_layer_ids.empty() && feature.states.front() != kFinalNorm)
      published.aux_layer_ids = feature.states;
    LEVADA_RETURN_IF_ERROR(seal_one(f, feature.name, feature.dtype, {1, tokens_, width_elements(feature)},
                                    measured.empty() ? std::nullopt : std::optional(measured[f])));
  }
  for (std::size_t p = 0; p < spec_.passthrough.size(); ++p) {
    const PassthroughSpec& tensor = spec_.passthrough[p];
    LEVADA_RETURN_IF_ERROR(
        seal_one(spec_.features.size() + p, tensor.name, tensor.dtype, tensor.shape, hash64(tensor.bytes)));
  }
  return published;
}

}  // namespace levada::capture
