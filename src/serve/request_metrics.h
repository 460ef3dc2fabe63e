// What: RequestMetrics, what is counted per request: tokens, outcomes, latencies.
// Owner: Api.
// Thread: the I/O thread (the series themselves may be read from any).
// Invariant: every counted request adds one to num_requests_total, and one that ends badly one to the abort counter.
// Names are SGLang's; those of ended requests carry the label is_streaming.
#pragma once

#include <cstdint>

#include "base/metrics.h"
#include "core/request.h"
#include "serve/answer_fold.h"

namespace levada::serve {

class RequestMetrics {
 public:
  explicit RequestMetrics(Metrics& metrics);

  void on_start(bool streaming) { by_mode_[streaming].requests->add(); }
  // `previous_us`: the time of the member's delta before, or of its arrival if `first`.
  void on_delta(bool streaming, const core::OutputDelta& delta, bool first, std::int64_t previous_us,
                std::int64_t now_us);
  void on_finish(bool streaming, const AnswerFold& fold);
  void on_abort() { aborted_->add(); }

 private:
  struct Series {
    Counter *requests, *prompt_tokens, *generation_tokens, *cached_tokens;
    Histogram *first_token_s, *inter_token_s, *per_token_s, *latency_s;
  };
  Series by_mode_[2];
  Counter *prefill_compute_, *prefill_cache_, *decode_, *aborted_;
};

}  // namespace levada::serve
