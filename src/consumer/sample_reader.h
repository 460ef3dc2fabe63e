// What: SampleReader, the bytes of one leased sample: read and verified, without a copy where the store can show its own
// memory, with one copy from device to device where both the store's and the trainer's are on one.
// Owner: the Feed; the pool of buffers lives in it, so samples must end before it.
// Thread: read() from one at a time.
// Invariant: what it returns is complete, has the checksums of its ref, and was read while its lease was valid; anything
// else is an error that says what to do. The buffer of a failed copy is never used again. What stays on a device is
// measured there on its way, by pieces (store/piece_hash.h), as publishers on a device measure it.
// Retries: a store that does not answer is asked again, into new buffers, after 2, 4 and 8 s.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/pause.h"
#include "consumer/buffer_pool.h"
#include "consumer/run_card.h"
#include "fanout/consumer_messages.h"
#include "store/object_store.h"

namespace levada::consumer {

using OpenStore = std::function<Result<std::unique_ptr<store::ObjectStore>>(const std::string& url)>;

// Keeps one object's bytes.
using HeldBytes = std::variant<store::ObjectView, BufferPool::Buffer>;

// One sample as the trainer uses it; the spans live as long as it does.
struct ReadSample {
  std::int64_t position = 0;
  std::int64_t generation = 0;
  std::string sample_id;  // without the mark of its epoch
  std::int64_t epoch = 0;
  std::span<const std::uint16_t> hidden_states;
  bool features_on_device = false;  // hidden_states are in memory of the reader's device
  std::span<const std::int64_t> input_ids, loss_mask;
  std::vector<HeldBytes> holders;
  bool is_copy = false;  // nothing of it lies in the store's memory
};

class SampleReader {
 public:
  struct Options {
    std::uint64_t max_quarantined_bytes = std::uint64_t{8} << 30;
    bool check_first_values = true;  // the first sample's numbers must be finite
    // Where features go from stores whose objects lie on a device; null: into host memory. Outlives samples and reader.
    device::Device* device = nullptr;
  };
  // Unreadable: tell the registry.
  struct Lost {
    fanout::LossReason reason;
    std::string what;
  };
  // The lease ended meanwhile: what was read is not used.
  struct Expired {};
  using Outcome = std::variant<ReadSample, Lost, Expired>;

  SampleReader(Options options, const RunCard& card, OpenStore open_store, Pause& pause);

  // `is_valid`: whether the lease still is, asked after the bytes were read. A Status is the consumer's end: too many
  // buffers in quarantine, a store that refuses its token, a device that fails or is full, or kAborted for a stop.
  Result<Outcome> read(const fanout::GrantedLease& lease, const std::function<bool()>& is_valid);

  // In the place of a position that could not be captured: two tokens, none supervised, so that nobody learns from it.
  // Its bytes are the reader's.
  ReadSample stand_in(std::int64_t position) const;

  const BufferPool& pool() const { return pool_; }

 private:
  struct Held {
    HeldBytes bytes;
    std::optional<std::uint64_t> checksum;  // measured where the bytes lie, if that is on the device
  };
  using Failure = std::variant<Lost, Status>;  // Status: the store does not answer

  Result<store::ObjectStore*> store_at(const std::string& url);
  // All objects of the ref, in its order.
  Result<std::variant<std::vector<Held>, Lost, Expired>> read_objects(const core::SampleRef& ref,
                                                                      const std::function<bool()>& is_valid);
  // Each of these appends what it read to `held`, or says why it couldn't.
  Result<std::optional<Failure>> try_objects(const core::SampleRef& ref, std::vector<Held>& held);
  // With one wait, the features from device to device.
  Result<std::optional<Failure>> fetch_objects(store::ObjectStore& store, const core::SampleRef& ref,
                                               std::vector<Held>& held);
  Result<std::optional<Failure>> copy_object(store::ObjectStore& store, const core::SampleRef& ref,
                                             const core::StoredTensor& tensor, std::vector<Held>& held);
  static std::optional<Lost> check_bytes(const core::SampleRef& ref, std::span<const Held> held);
  static Failure judge_failure(const Status& status, const core::SampleRef& ref);
  std::optional<Lost> assemble(const fanout::GrantedLease& lease, ReadSample& sample) const;
  // Of the first sample.
  Result<std::optional<Lost>> check_values(const ReadSample& sample);

  static constexpr std::size_t kStandInTokens = 2;

  const Options options_;
  const RunCard& card_;
  OpenStore open_store_;
  Pause& pause_;
  const std::unique_ptr<device::Device> host_;
  BufferPool pool_;
  std::optional<BufferPool> device_pool_, pinned_pool_;
  const std::vector<std::uint16_t> blank_states_;
  const std::array<std::int64_t, kStandInTokens> blank_ids_{};
  std::map<std::string, std::unique_ptr<store::ObjectStore>>
      stores_;  // they connect anew by themselves; views need them
  bool checked_first_ = false;
};

}  // namespace levada::consumer
