#include "consumer/sample_reader.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "consumer/sample_check.h"
#include "store/piece_hash.h"

namespace levada::consumer {
namespace {

constexpr std::array<std::int64_t, 3> kRetryPausesUs = {2'000'000, 4'000'000, 8'000'000};

std::span<const std::byte> bytes_of_held(const HeldBytes& held) {
  if (const auto* view = std::get_if<store::ObjectView>(&held)) return view->bytes();
  return std::get<BufferPool::Buffer>(held).bytes();
}

// Bytes in place on a device, which only the device can measure: together with others, once they have been used.
bool is_measured_later(const HeldBytes& held, bool on_device) {
  return on_device && std::holds_alternative<store::ObjectView>(held);
}

template <class T>
bool is_aligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) == 0;
}

template <class T>
std::span<const T> as(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::string key_of(const core::SampleRef& ref, const core::StoredTensor& tensor) {
  return core::object_key(ref.store_id, ref.sample_id, ref.generation, tensor.name);
}

// The plan appends ":e{epoch}" from the second epoch on.
std::string without_epoch(const std::string& sample_id, std::int64_t epoch) {
  const std::string mark = ":e" + std::to_string(epoch);
  const bool has_mark = epoch > 0 && sample_id.size() > mark.size() &&
                        sample_id.compare(sample_id.size() - mark.size(), mark.size(), mark) == 0;
  return has_mark ? sample_id.substr(0, sample_id.size() - mark.size()) : sample_id;
}

}  // namespace

bool ReadSample::still_there() const {
  return std::all_of(holders.begin(), holders.end(), [](const HeldBytes& held) {
    const auto* view = std::get_if<store::ObjectView>(&held);
    return view == nullptr || view->still_valid();
  });
}

SampleReader::SampleReader(Options options, const RunCard& card, OpenStore open_store, Pause& pause)
    : options_(options),
      card_(card),
      open_store_(std::move(open_store)),
      pause_(pause),
      host_(device::open_device(device::DeviceKind::kCpu).value()),
      pool_(*host_, BufferPool::Place::kDevice, options.max_quarantined_bytes),
      blank_states_(kStandInTokens * static_cast<std::size_t>(card.aux_width())) {
  if (options_.device == nullptr) return;
  device_pool_.emplace(*options_.device, BufferPool::Place::kDevice, options_.max_quarantined_bytes);
  pinned_pool_.emplace(*options_.device, BufferPool::Place::kPinned, options_.max_quarantined_bytes);
}

Result<store::ObjectStore*> SampleReader::store_at(const std::string& url) {
  auto& held = stores_[url];
  if (held == nullptr) {
    LEVADA_ASSIGN_OR_RETURN(held, open_store_(url));
  }
  return held.get();
}

// What a store's refusal means for the sample, or the Status itself if asking again may help.
SampleReader::Failure SampleReader::judge_failure(const Status& status, const core::SampleRef& ref) {
  const std::string what = ref.store_url + ": " + status.message();
  switch (status.code()) {
    case StatusCode::kUnavailable: return status;
    case StatusCode::kNotFound: return Lost{fanout::LossReason::kGone, what};
    case StatusCode::kInvalidArgument: return Lost{fanout::LossReason::kShortRead, what};
    case StatusCode::kDataLoss: return Lost{fanout::LossReason::kBadBytes, what};
    default: return Lost{fanout::LossReason::kIo, what};
  }
}

Result<std::optional<SampleReader::Failure>> SampleReader::copy_object(store::ObjectStore& store,
                                                                       const core::SampleRef& ref,
                                                                       const core::StoredTensor& tensor,
                                                                       BufferPool& pool, std::vector<Held>& held) {
  LEVADA_ASSIGN_OR_RETURN(BufferPool::Buffer buffer, pool.take(tensor.bytes()));
  const auto read = store.get_into(key_of(ref, tensor), buffer.bytes(), ref.incarnation);
  if (!read.ok()) {
    LEVADA_RETURN_IF_ERROR(pool.quarantine(std::move(buffer)));
    return std::optional(judge_failure(read.status(), ref));
  }
  held.push_back({std::move(buffer), {}});
  return std::optional<Failure>();
}

Result<std::optional<SampleReader::Failure>> SampleReader::fetch_objects(store::ObjectStore& store,
                                                                         const core::SampleRef& ref,
                                                                         std::vector<Held>& held) {
  if (options_.in_place) {
    auto view = store.view(key_of(ref, ref.tensors.front()), ref.incarnation);
    if (!view.ok()) return std::optional(judge_failure(view.status(), ref));
    held.push_back({*std::move(view), {}, true});
  }
  std::vector<std::string> keys;
  std::vector<BufferPool::Buffer> buffers;
  for (std::size_t i = held.size(); i < ref.tensors.size(); ++i) {
    BufferPool& pool = i == 0 ? *device_pool_ : *pinned_pool_;  // features come first
    LEVADA_ASSIGN_OR_RETURN(BufferPool::Buffer buffer, pool.take(ref.tensors[i].bytes()));
    buffers.push_back(std::move(buffer));
    keys.push_back(key_of(ref, ref.tensors[i]));
  }
  std::vector<store::ObjectStore::Fetch> fetches;
  for (std::size_t i = 0; i < keys.size(); ++i) fetches.push_back({keys[i], buffers[i].bytes()});
  using Mode = store::ObjectStore::FetchMode;
  const Status read = store.fetch(fetches, ref.incarnation, options_.in_place ? Mode::kPlain : Mode::kMeasured);
  if (!read.ok()) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      BufferPool& pool = held.size() + i == 0 ? *device_pool_ : *pinned_pool_;
      LEVADA_RETURN_IF_ERROR(pool.quarantine(std::move(buffers[i])));
    }
    if (read.code() == StatusCode::kInternal) return read;  // the device's own failure says nothing about the sample
    return std::optional(judge_failure(read, ref));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const bool on_device = held.empty();
    held.push_back(
        {std::move(buffers[i]), options_.in_place ? std::nullopt : std::optional(fetches[i].checksum), on_device});
  }
  return std::optional<Failure>();
}

Result<std::optional<SampleReader::Failure>> SampleReader::try_objects(const core::SampleRef& ref,
                                                                       std::vector<Held>& held) {
  auto store = store_at(ref.store_url);
  if (!store.ok()) {
    const bool may_pass = store.status().code() == StatusCode::kUnavailable;
    if (may_pass) return std::optional(Failure(store.status()));
    return store.status();
  }
  const store::Capabilities offers = (*store)->capabilities();
  if (offers.on_device && device_pool_) return fetch_objects(**store, ref, held);
  const bool uploads = device_pool_.has_value();
  for (const core::StoredTensor& tensor : ref.tensors) {
    // What goes on to the device needs its memory in the store until then only.
    const bool is_source = uploads && held.empty();
    if (offers.zero_copy && !offers.on_device && (is_source || (options_.in_place && !uploads))) {
      auto view = (*store)->view(key_of(ref, tensor), ref.incarnation);
      if (!view.ok()) return std::optional(judge_failure(view.status(), ref));
      held.push_back({*std::move(view), {}});
      continue;
    }
    LEVADA_ASSIGN_OR_RETURN(auto failure, copy_object(**store, ref, tensor, is_source ? *pinned_pool_ : pool_, held));
    if (failure) return failure;
  }
  return std::optional<Failure>();
}

Status SampleReader::upload(Held& features) {
  if (uploader_ == nullptr) {
    LEVADA_ASSIGN_OR_RETURN(uploader_, store::BatchCopier::create(*options_.device));
  }
  const std::span<const std::byte> from = bytes_of_held(features.bytes);
  LEVADA_ASSIGN_OR_RETURN(BufferPool::Buffer buffer, device_pool_->take(from.size()));
  const store::Transfer transfer{from.data(), buffer.bytes().data(), from.size()};
  LEVADA_RETURN_IF_ERROR(uploader_->copy(std::span(&transfer, 1)));
  features = {std::move(buffer), {}, true};
  return {};
}

// Whether these are the bytes that the ref names.
std::optional<SampleReader::Lost> SampleReader::check_bytes(const core::SampleRef& ref, std::span<const Held> held) {
  for (std::size_t i = 0; i < held.size(); ++i) {
    const core::StoredTensor& tensor = ref.tensors[i];
    const std::span<const std::byte> bytes = bytes_of_held(held[i].bytes);
    if (bytes.size() != tensor.bytes()) {
      return Lost{fanout::LossReason::kShortRead, tensor.name + " has " + std::to_string(bytes.size()) +
                                                      " bytes instead of " + std::to_string(tensor.bytes())};
    }
    if (is_measured_later(held[i].bytes, held[i].on_device)) continue;
    const bool matches =
        held[i].checksum ? *held[i].checksum == tensor.checksum : store::matches_checksum(bytes, tensor.checksum);
    if (!matches) return Lost{fanout::LossReason::kBadBytes, tensor.name + " does not match its checksum"};
  }
  return std::nullopt;
}

Result<std::variant<std::vector<SampleReader::Held>, SampleReader::Lost, SampleReader::Expired>>
SampleReader::read_objects(const core::SampleRef& ref, const std::function<bool()>& is_valid) {
  using Read = std::variant<std::vector<Held>, Lost, Expired>;
  for (std::size_t attempt = 0;; ++attempt) {
    std::vector<Held> held;
    LEVADA_ASSIGN_OR_RETURN(auto failure, try_objects(ref, held));
    if (!failure) {
      if (auto lost = check_bytes(ref, held)) return Read(std::move(*lost));
      if (device_pool_ && !held.front().on_device) LEVADA_RETURN_IF_ERROR(upload(held.front()));
      return Read(std::move(held));
    }
    if (auto* lost = std::get_if<Lost>(&*failure)) return Read(std::move(*lost));
    const Status& status = std::get<Status>(*failure);
    if (attempt == kRetryPausesUs.size()) {
      return Read(Lost{fanout::LossReason::kIo, ref.store_url + ": " + status.message()});
    }
    if (!pause_.wait_us(kRetryPausesUs[attempt])) return Status(StatusCode::kAborted, "stopped");
    if (!is_valid()) return Read(Expired{});
  }
}

std::optional<SampleReader::Lost> SampleReader::assemble(const fanout::GrantedLease& lease, ReadSample& sample) const {
  const auto bytes = [&](std::size_t i) { return bytes_of_held(sample.holders[i]); };
  if (!is_aligned<std::uint16_t>(bytes(0)) || !is_aligned<std::int64_t>(bytes(1)) ||
      !is_aligned<std::int64_t>(bytes(2))) {
    return Lost{fanout::LossReason::kBadBytes, "an object begins at an odd address"};
  }
  sample.position = lease.source_index;
  sample.generation = lease.generation;
  sample.epoch = card_.epoch_of(lease.source_index);
  sample.sample_id = without_epoch(lease.source_sample_id, sample.epoch);
  sample.hidden_states = as<std::uint16_t>(bytes(0));
  sample.input_ids = as<std::int64_t>(bytes(1));
  sample.loss_mask = as<std::int64_t>(bytes(2));
  sample.is_copy = true;
  for (const HeldBytes& held : sample.holders) {
    if (std::holds_alternative<store::ObjectView>(held)) sample.is_copy = false;
  }
  return std::nullopt;
}

Result<std::optional<SampleReader::Lost>> SampleReader::check_values(const ReadSample& sample) {
  if (checked_first_ || !options_.check_first_values) return std::optional<Lost>();
  std::span<const std::uint16_t> numbers = sample.hidden_states;
  std::vector<std::uint16_t> brought;
  if (sample.features_on_device) {
    brought.resize(numbers.size());
    LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, options_.device->make_stream());
    LEVADA_RETURN_IF_ERROR(stream->copy(brought.data(), numbers.data(), numbers.size_bytes()));
    LEVADA_RETURN_IF_ERROR(stream->synchronize());
    numbers = brought;
  }
  const std::int64_t width = static_cast<std::int64_t>(card_.aux_layer_ids.size()) * card_.hidden_size;
  if (const Status finite = check_finite(numbers, width); !finite.ok()) {
    return std::optional(Lost{fanout::LossReason::kBadBytes, finite.message()});
  }
  checked_first_ = true;
  return std::optional<Lost>();
}

Result<SampleReader::Outcome> SampleReader::read(const fanout::GrantedLease& lease,
                                                 const std::function<bool()>& is_valid) {
  if (const Status checked = check_lease(lease, card_); !checked.ok()) {
    return Outcome(Lost{fanout::LossReason::kBadBytes, checked.message()});
  }
  ReadSample sample;
  LEVADA_ASSIGN_OR_RETURN(auto read, read_objects(*lease.ref, is_valid));
  if (auto* lost = std::get_if<Lost>(&read)) return Outcome(std::move(*lost));
  if (std::holds_alternative<Expired>(read)) return Outcome(Expired{});
  std::vector<Held>& held = std::get<std::vector<Held>>(read);
  const bool on_device = held.front().on_device;
  sample.features_on_device = on_device && options_.device->kind() == device::DeviceKind::kCuda;
  sample.in_place = std::holds_alternative<store::ObjectView>(held.front().bytes);
  if (is_measured_later(held.front().bytes, on_device)) sample.unverified = lease.ref->tensors.front().checksum;
  for (Held& one : held) sample.holders.push_back(std::move(one.bytes));
  // Bytes whose lease ended while they were read may be anybody's, whatever their checksum says.
  if (!is_valid()) return Outcome(Expired{});
  if (auto lost = assemble(lease, sample)) return Outcome(std::move(*lost));
  LEVADA_ASSIGN_OR_RETURN(auto strange, check_values(sample));
  if (strange) return Outcome(std::move(*strange));
  return Outcome(std::move(sample));
}

Result<std::vector<bool>> SampleReader::verify(std::span<const ReadSample* const> samples) {
  std::vector<store::Transfer> transfers;
  for (const ReadSample* sample : samples) {
    if (!sample->unverified) continue;
    const auto bytes = std::as_bytes(sample->hidden_states);
    transfers.push_back({bytes.data(), nullptr, bytes.size()});
  }
  std::vector<bool> matches(samples.size(), true);
  if (transfers.empty()) return matches;
  if (verifier_ == nullptr) {
    LEVADA_ASSIGN_OR_RETURN(verifier_, store::BatchCopier::create(*options_.device));
  }
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> measured, verifier_->copy_measured(transfers));
  auto next = measured.begin();
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i]->unverified) matches[i] = *next++ == *samples[i]->unverified;
  return matches;
}

ReadSample SampleReader::stand_in(std::int64_t position) const {
  ReadSample sample;
  sample.position = position;
  sample.sample_id = "skipped";
  sample.hidden_states = blank_states_;
  sample.input_ids = blank_ids_;
  sample.loss_mask = blank_ids_;
  return sample;
}

}  // namespace levada::consumer
