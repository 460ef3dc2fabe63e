#include "model/cuda/result_slots.h"

namespace levada::model {

class TokensOnTheirWay final : public SampledTokens {
 public:
  TokensOnTheirWay(std::shared_ptr<ResultSlots> slots, std::unique_ptr<ResultSlots::Slot> slot, ResultTokens which)
      : slots_(std::move(slots)), slot_(std::move(slot)), which_(std::move(which)) {}
  ~TokensOnTheirWay() override {
    // Memory that a copy may still write to is not given to the next step.
    if (slot_->arrived->wait().ok()) slots_->give_back(std::move(slot_));
  }
  Result<StepTokens> wait() override {
    LEVADA_RETURN_IF_ERROR(slot_->arrived->wait());
    const auto* tokens = static_cast<const std::int32_t*>(slot_->pinned->data());
    StepTokens result{{tokens, tokens + which_.sampled}, {}};
    const std::int32_t* proposed = tokens + which_.proposed_first;
    for (const std::int32_t count : which_.wanted) {
      result.proposed.insert(result.proposed.end(), proposed, proposed + count);
      proposed += which_.proposed_each;
    }
    return result;
  }

 private:
  std::shared_ptr<ResultSlots> slots_;  // shared: tokens may outlive the model that sent them
  std::unique_ptr<ResultSlots::Slot> slot_;
  const ResultTokens which_;
};

Result<std::unique_ptr<ResultSlots::Slot>> ResultSlots::take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Slot> slot = std::move(free_.back());
      free_.pop_back();
      return slot;
    }
  }
  auto slot = std::make_unique<Slot>();
  LEVADA_ASSIGN_OR_RETURN(slot->pinned, device_.allocate_pinned(static_cast<std::size_t>(max_tokens_) * 4));
  LEVADA_ASSIGN_OR_RETURN(slot->arrived, device_.make_event());
  return slot;
}

void ResultSlots::give_back(std::unique_ptr<Slot> slot) {
  std::lock_guard lock(mutex_);
  free_.push_back(std::move(slot));
}

Result<std::unique_ptr<SampledTokens>> ResultSlots::send(const std::int32_t* tokens, ResultTokens which,
                                                         device::Stream& stream) {
  const std::size_t count = which.total();
  LEVADA_CHECK(static_cast<std::int64_t>(count) <= max_tokens_, "as many tokens as a step can give");
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Slot> slot, take());
  if (count > 0) LEVADA_RETURN_IF_ERROR(stream.copy(slot->pinned->data(), tokens, count * sizeof(std::int32_t)));
  LEVADA_RETURN_IF_ERROR(stream.record(*slot->arrived));
  return std::unique_ptr<SampledTokens>(
      std::make_unique<TokensOnTheirWay>(shared_from_this(), std::move(slot), std::move(which)));
}

}  // namespace levada::model
