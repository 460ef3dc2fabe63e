// What: ResultSlots, pinned memory in which a step's tokens come from the device, and the tokens on their way.
// Owner: shared by the model and the tokens it has given out: whoever lives longest.
// Thread: send() on the worker's thread; SampledTokens::wait() on any.
// Invariant: a slot belongs to one step from send() until its SampledTokens dies.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "model/model.h"

namespace levada::model {

// Where a step's tokens lie on the device: `sampled` of them from the first on; from `proposed_first` on `proposed_each`
// for every request that wanted some, of which the first wanted[i] are the i-th's.
struct ResultTokens {
  std::size_t sampled = 0, proposed_first = 0, proposed_each = 0;
  std::vector<std::int32_t> wanted;

  std::size_t total() const { return wanted.empty() ? sampled : proposed_first + proposed_each * wanted.size(); }
};

class ResultSlots : public std::enable_shared_from_this<ResultSlots> {
 public:
  // The device must outlive the slots.
  ResultSlots(device::Device& device, std::int64_t max_tokens) : device_(device), max_tokens_(max_tokens) {}

  // Enqueues the copy of the tokens from the device.
  Result<std::unique_ptr<SampledTokens>> send(const std::int32_t* tokens, ResultTokens which, device::Stream& stream);

 private:
  friend class TokensOnTheirWay;
  struct Slot {
    std::unique_ptr<device::DeviceBuffer> pinned;
    std::unique_ptr<device::Event> arrived;
  };
  Result<std::unique_ptr<Slot>> take();
  void give_back(std::unique_ptr<Slot> slot);

  device::Device& device_;
  const std::int64_t max_tokens_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> free_;
};

}  // namespace levada::model
