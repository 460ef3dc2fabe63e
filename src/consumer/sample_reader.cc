#include "consumer/sample_reader.h"

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

template <class T>
bool is_aligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) == 0;
}

template <class T>
std::span<const T> as(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// The plan appends ":e{epoch}" from the second epoch on.
std::string without_epoch(const std::string& sample_id, std::int64_t epoch) {
  const std::string mark = ":e" + std::to_string(epoch);
  const bool has_mark = epoch > 0 && sample_id.size() > mark.size() &&
                        sample_id.compare(sample_id.size() - mark.size(), mark.size(), mark) == 0;
  return has_mark ? sample_id.substr(0, sample_id.size() - mark.size()) : sample_id;
}

}  // namespace

SampleReader::SampleReader(Options options, const RunCard& card, OpenStore open_store, Pause& pause)
    : options_(options),
      card_(card),
      open_store_(std::move(open_store)),
      pause_(pause),
      host_(device::open_device(device::DeviceKind::kCpu).value()),
      pool_(*host_, options.max_quarantined_bytes),
      blank_states_(kStandInTokens * static_cast<std::size_t>(card.aux_width())) {
  if (options_.device != nullptr) device_pool_.emplace(*options_.device, options_.max_quarantined_bytes);
}

Result<store::ObjectStore*> SampleReader::store_at(const std::string& url) {
  auto& held = stores_[url];
  if (held == nullptr) {
    LEVADA_ASSIGN_OR_RETURN(held, open_store_(url));
  }
  return held.get();
}

// What a store's refusal means for the sample, or the Status itself if asking again may help.
SampleReader::Attempt SampleReader::judge_failure(const Status& status, const core::SampleRef& ref) const {
  const std::string what = ref.store_url + ": " + status.message();
  switch (status.code()) {
    case StatusCode::kUnavailable: return status;
    case StatusCode::kNotFound: return Lost{fanout::LossReason::kGone, what};
    case StatusCode::kInvalidArgument: return Lost{fanout::LossReason::kShortRead, what};
    case StatusCode::kDataLoss: return Lost{fanout::LossReason::kBadBytes, what};
    default: return Lost{fanout::LossReason::kIo, what};
  }
}

Result<SampleReader::Attempt> SampleReader::copy_object(store::ObjectStore& store, const core::SampleRef& ref,
                                                        const std::string& key, std::size_t bytes) {
  LEVADA_ASSIGN_OR_RETURN(BufferPool::Buffer buffer, pool_.take(bytes));
  const auto read = store.get_into(key, buffer.bytes(), ref.incarnation);
  if (read.ok()) return Attempt(Held{std::move(buffer), {}});
  LEVADA_RETURN_IF_ERROR(pool_.quarantine(std::move(buffer)));
  return judge_failure(read.status(), ref);
}

Result<SampleReader::Attempt> SampleReader::fetch_object(store::ObjectStore& store, const core::SampleRef& ref,
                                                         const std::string& key, std::size_t bytes) {
  LEVADA_ASSIGN_OR_RETURN(BufferPool::Buffer buffer, device_pool_->take(bytes));
  store::ObjectStore::Fetch fetch{key, buffer.bytes()};
  const Status read = store.fetch(std::span(&fetch, 1), ref.incarnation);
  if (read.ok()) return Attempt(Held{std::move(buffer), fetch.checksum});
  LEVADA_RETURN_IF_ERROR(device_pool_->quarantine(std::move(buffer)));
  if (read.code() == StatusCode::kInternal) return read;  // the device's own failure says nothing about the sample
  return judge_failure(read, ref);
}

Result<SampleReader::Attempt> SampleReader::try_object(const core::SampleRef& ref, const core::StoredTensor& tensor,
                                                       bool as_features) {
  auto store = store_at(ref.store_url);
  if (!store.ok()) {
    const bool may_pass = store.status().code() == StatusCode::kUnavailable;
    if (may_pass) return Attempt(store.status());
    return store.status();
  }
  const std::string key = core::object_key(ref.store_id, ref.sample_id, ref.generation, tensor.name);
  const store::Capabilities offers = (*store)->capabilities();
  if (offers.on_device && as_features && device_pool_) return fetch_object(**store, ref, key, tensor.bytes());
  if (!offers.zero_copy || offers.on_device) return copy_object(**store, ref, key, tensor.bytes());
  auto view = (*store)->view(key, ref.incarnation);
  if (!view.ok()) return judge_failure(view.status(), ref);
  return Attempt(Held{std::move(*view), {}});
}

Result<std::variant<SampleReader::Held, SampleReader::Lost, SampleReader::Expired>> SampleReader::read_object(
    const core::SampleRef& ref, const core::StoredTensor& tensor, bool as_features,
    const std::function<bool()>& is_valid) {
  using Read = std::variant<Held, Lost, Expired>;
  for (std::size_t attempt = 0;; ++attempt) {
    LEVADA_ASSIGN_OR_RETURN(Attempt result, try_object(ref, tensor, as_features));
    if (auto* held = std::get_if<Held>(&result)) {
      const std::span<const std::byte> bytes = bytes_of_held(held->bytes);
      if (bytes.size() != tensor.bytes()) {
        return Read(Lost{fanout::LossReason::kShortRead, tensor.name + " has " + std::to_string(bytes.size()) +
                                                             " bytes instead of " + std::to_string(tensor.bytes())});
      }
      if (held->checksum ? *held->checksum != tensor.checksum : !store::matches_checksum(bytes, tensor.checksum)) {
        return Read(Lost{fanout::LossReason::kBadBytes, tensor.name + " does not match its checksum"});
      }
      return Read(std::move(*held));
    }
    if (auto* lost = std::get_if<Lost>(&result)) return Read(std::move(*lost));
    const Status& status = std::get<Status>(result);
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
  for (const core::StoredTensor& tensor : lease.ref->tensors) {
    const bool as_features = sample.holders.empty();  // the first tensor
    LEVADA_ASSIGN_OR_RETURN(auto read, read_object(*lease.ref, tensor, as_features, is_valid));
    if (auto* lost = std::get_if<Lost>(&read)) return Outcome(std::move(*lost));
    if (std::holds_alternative<Expired>(read)) return Outcome(Expired{});
    Held& held = std::get<Held>(read);
    if (held.checksum) sample.features_on_device = true;
    sample.holders.push_back(std::move(held.bytes));
  }
  // Bytes whose lease ended while they were read may be anybody's, whatever their checksum says.
  if (!is_valid()) return Outcome(Expired{});
  if (auto lost = assemble(lease, sample)) return Outcome(std::move(*lost));
  LEVADA_ASSIGN_OR_RETURN(auto strange, check_values(sample));
  if (strange) return Outcome(std::move(*strange));
  return Outcome(std::move(sample));
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
