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
  BufferPool::Buffer buffer = pool_.take(bytes);
  const auto read = store.get_into(key, buffer.bytes(), ref.incarnation);
  if (read.ok()) return Attempt(HeldBytes(std::move(buffer)));
  LEVADA_RETURN_IF_ERROR(pool_.quarantine(std::move(buffer)));
  return judge_failure(read.status(), ref);
}

Result<SampleReader::Attempt> SampleReader::try_object(const core::SampleRef& ref, const core::StoredTensor& tensor) {
  auto store = store_at(ref.store_url);
  if (!store.ok()) {
    const bool may_pass = store.status().code() == StatusCode::kUnavailable;
    if (may_pass) return Attempt(store.status());
    return store.status();
  }
  const std::string key = core::object_key(ref.store_id, ref.sample_id, ref.generation, tensor.name);
  const store::Capabilities offers = (*store)->capabilities();
  if (!offers.zero_copy || offers.on_device) return copy_object(**store, ref, key, tensor.bytes());
  auto view = (*store)->view(key, ref.incarnation);
  if (!view.ok()) return judge_failure(view.status(), ref);
  return Attempt(HeldBytes(std::move(*view)));
}

Result<std::variant<HeldBytes, SampleReader::Lost, SampleReader::Expired>> SampleReader::read_object(
    const core::SampleRef& ref, const core::StoredTensor& tensor, const std::function<bool()>& is_valid) {
  using Read = std::variant<HeldBytes, Lost, Expired>;
  for (std::size_t attempt = 0;; ++attempt) {
    LEVADA_ASSIGN_OR_RETURN(Attempt result, try_object(ref, tensor));
    if (auto* held = std::get_if<HeldBytes>(&result)) {
      const std::span<const std::byte> bytes = bytes_of_held(*held);
      if (bytes.size() != tensor.bytes()) {
        return Read(Lost{fanout::LossReason::kShortRead, tensor.name + " has " + std::to_string(bytes.size()) +
                                                             " bytes instead of " + std::to_string(tensor.bytes())});
      }
      if (!store::matches_checksum(bytes, tensor.checksum)) {
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

std::optional<SampleReader::Lost> SampleReader::assemble(const fanout::GrantedLease& lease, ReadSample& sample) {
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
  if (checked_first_ || !options_.check_first_values) return std::nullopt;
  const std::int64_t width = static_cast<std::int64_t>(card_.aux_layer_ids.size()) * card_.hidden_size;
  if (const Status finite = check_finite(sample.hidden_states, width); !finite.ok()) {
    return Lost{fanout::LossReason::kBadBytes, finite.message()};
  }
  checked_first_ = true;
  return std::nullopt;
}

Result<SampleReader::Outcome> SampleReader::read(const fanout::GrantedLease& lease,
                                                 const std::function<bool()>& is_valid) {
  if (const Status checked = check_lease(lease, card_); !checked.ok()) {
    return Outcome(Lost{fanout::LossReason::kBadBytes, checked.message()});
  }
  ReadSample sample;
  for (const core::StoredTensor& tensor : lease.ref->tensors) {
    LEVADA_ASSIGN_OR_RETURN(auto read, read_object(*lease.ref, tensor, is_valid));
    if (auto* lost = std::get_if<Lost>(&read)) return Outcome(std::move(*lost));
    if (std::holds_alternative<Expired>(read)) return Outcome(Expired{});
    sample.holders.push_back(std::move(std::get<HeldBytes>(read)));
  }
  // Bytes whose lease ended while they were read may be anybody's, whatever their checksum says.
  if (!is_valid()) return Outcome(Expired{});
  if (auto lost = assemble(lease, sample)) return Outcome(std::move(*lost));
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
