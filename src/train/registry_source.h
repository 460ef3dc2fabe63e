// What: RegistrySource, the SampleSource of a consumer of a fan-out run: a trainer's view of its Feed.
// Owner: the consumer's process; the Feed must outlive it.
// Thread: the trainer's.
// Invariant: samples are the Feed's own memory, never copied; a trainer's step k is the registry's step k.
// What happens below stands in consumer/feed.h.
#pragma once

#include "consumer/feed.h"
#include "train/sample_source.h"

namespace levada::train {

class RegistrySource final : public SampleSource {
 public:
  explicit RegistrySource(consumer::Feed& feed) : feed_(feed) {}

  // REQUIRES: count is the consumer's quantum.
  Result<std::vector<Sample>> next(std::int64_t count) override;
  Status checkpointed(std::int64_t step, const std::filesystem::path& folder) override;
  Result<bool> confirm() override { return feed_.confirm(); }
  Status stepped(std::int64_t step) override { return feed_.stepped(step); }

 private:
  consumer::Feed& feed_;
};

}  // namespace levada::train
