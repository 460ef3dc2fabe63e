// What: SampleReader, the bytes of one leased sample: read and verified, ready to be trained on where the trainer computes:
// in place where the store can show its memory there, else in a copy, on a GPU if the trainer has one.
// Owner: the Feed; the pool of buffers lives in it, so samples must end before it.
// Thread: read() from one at a time, verify() from one at a time.
// Invariant: what it returns is complete, has the checksums of its ref, and was read while its lease was valid; anything
// else is an error that says what to do. The buffer of a failed copy is never used again. Only features that are used in a
// device's memory, in place, are measured later: by verify(), after their last use and before anything comes of it.
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
#include "store/batch_copier.h"
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
  bool features_on_device = false;  // hidden_states are in memory of the reader's device, which is a GPU
  bool in_place = false;            // hidden_states are the store's own memory
  std::span<const std::int64_t> input_ids, loss_mask;
  std::vector<HeldBytes> holders;
  bool is_copy = false;                     // nothing of it lies in the store's memory
  std::optional<std::uint64_t> unverified;  // the checksum that hidden_states must have; none: they had it

  // Whether the store still has every object that is used in place. REQUIRES: they have been used.
  bool still_there() const;
};

class SampleReader {
 public:
  static constexpr std::int64_t kMostInPlace = 128;
  struct Options {
    std::uint64_t max_quarantined_bytes = std::uint64_t{8} << 30;
    bool check_first_values = true;  // the first sample's numbers must be finite
    // That trains, and is to have the features; null: they stay in host memory. Outlives samples and reader.
    device::Device* device = nullptr;
    // false: samples are copied whole, so that their leases may end at once. REQUIRES: false where more than kMostInPlace
    // live at once; a store's client has no more slots for what it uses.
    bool in_place = true;
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

  // Whether a sample's features have their checksum, asked after their last use, for each. kInternal: the device failed.
  Result<std::vector<bool>> verify(std::span<const ReadSample* const> samples);

  // In the place of a position that could not be captured: two tokens, none supervised, so that nobody learns from it.
  // Its bytes are the reader's.
  ReadSample stand_in(std::int64_t position) const;

  const BufferPool& pool() const { return pool_; }

 private:
  struct Held {
    HeldBytes bytes;
    std::optional<std::uint64_t> checksum;  // measured where the bytes lie, if that is on the device
    bool on_device = false;
  };
  using Failure = std::variant<Lost, Status>;  // Status: the store does not answer

  Result<store::ObjectStore*> store_at(const std::string& url);
  // All objects of the ref, in its order.
  Result<std::variant<std::vector<Held>, Lost, Expired>> read_objects(const core::SampleRef& ref,
                                                                      const std::function<bool()>& is_valid);
  // Each of these appends what it read to `held`, or says why it couldn't.
  Result<std::optional<Failure>> try_objects(const core::SampleRef& ref, std::vector<Held>& held);
  // From a store on a device. The features stay where they are, or go from device to device; the rest comes to the host.
  Result<std::optional<Failure>> fetch_objects(store::ObjectStore& store, const core::SampleRef& ref,
                                               std::vector<Held>& held);
  Result<std::optional<Failure>> copy_object(store::ObjectStore& store, const core::SampleRef& ref,
                                             const core::StoredTensor& tensor, BufferPool& pool,
                                             std::vector<Held>& held);
  static std::optional<Lost> check_bytes(const core::SampleRef& ref, std::span<const Held> held);
  // Brings verified features from host memory to the device.
  Status upload(Held& features);
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
  std::unique_ptr<store::BatchCopier> uploader_, verifier_;  // of read() and of verify(), made when first needed
  const std::vector<std::uint16_t> blank_states_;
  const std::array<std::int64_t, kStandInTokens> blank_ids_{};
  std::map<std::string, std::unique_ptr<store::ObjectStore>>
      stores_;  // they connect anew by themselves; views need them
  bool checked_first_ = false;
};

}  // namespace levada::consumer
