// What: Outbox, the scheduler's OutputSink: carries each step's deltas to the I/O thread in one hop.
// Owner: whoever composes the process; made before the Scheduler, connected by Api.
// Thread: on_outputs() on the scheduler's thread; the receiver runs on the I/O thread.
// Invariant: order is kept; deltas that come while nobody is connected are dropped.
#pragma once

#include <functional>
#include <vector>

#include "core/request.h"
#include "http/server.h"

namespace levada::serve {

class Outbox final : public core::OutputSink {
 public:
  explicit Outbox(http::Server& server) : server_(server) {}

  void on_outputs(std::vector<core::OutputDelta> deltas) override;
  // Before the scheduler takes its first request.
  void connect(std::function<void(const std::vector<core::OutputDelta>&)> receiver) { receiver_ = std::move(receiver); }

 private:
  http::Server& server_;
  std::function<void(const std::vector<core::OutputDelta>&)> receiver_;  // used on the I/O thread only
};

}  // namespace levada::serve
