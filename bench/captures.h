// What: Captures, the samples of a bench with captures: the outputs of five layers, as a DFlash draft wants them,
// published into an arena of their own and removed again.
// Owner: the bench; must outlive the worker that is given its sink.
// Thread: any.
// Invariant: the way is the server's: space first, then rows from the layers, then the seal.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "capture/publisher.h"
#include "core/model_info.h"

namespace levada::bench {

class Captures {
 public:
  // Room for `samples` of `tokens` rows; `device`: where, null for host memory.
  Captures(const core::ModelInfo& info, std::int32_t samples, std::int32_t tokens, device::Device* device);
  capture::RowSink* sink() { return publisher_.get(); }

  // Reserves a sample of `tokens` rows; the answer comes on the publisher's thread.
  void open(std::int32_t tokens, std::function<void(Result<core::CaptureRequest>)> on_opened);
  // As soon as every row was given.
  void seal(core::CaptureId id, std::function<void(Status)> on_sealed);
  // Frees what was published.
  void clear() { arena_->remove_prefix("bench/"); }

 private:
  const std::int32_t hidden_size_;
  std::vector<std::int32_t> layers_;
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<store::Arena> arena_;
  std::unique_ptr<capture::Publisher> publisher_;
  std::atomic<int> samples_ = 0;
};

}  // namespace levada::bench
