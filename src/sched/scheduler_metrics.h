// What: SchedulerMetrics, the series the scheduler feeds, looked up once by name.
// Owner: the Brain; the objects live in Metrics.
// Thread: the scheduler's.
// Invariant: no name or label look-up after construction. Per-request series (latencies, token counters) are serve's,
// which knows whether a client streams.
#pragma once

#include <cstdint>

#include "base/metrics.h"

namespace levada::sched {

struct SchedulerMetrics {
  explicit SchedulerMetrics(Metrics& metrics);

  Gauge& running_requests;
  Gauge& queued_requests;
  Gauge& used_tokens;
  Gauge& kv_used_tokens;
  Gauge& available_tokens;
  Gauge& evictable_tokens;
  Gauge& max_total_tokens;
  Gauge& token_usage;
  Gauge& page_size;
  Gauge& context_length;
  Gauge& cache_hit_rate;
  Gauge& generation_throughput;
  Gauge& spec_accept_length;
  Gauge& spec_accept_rate;
  Counter& spec_drafts;
  Counter& spec_accepted;
  Counter& retracted_requests;
  Counter& evicted_tokens;
  Histogram& queue_time_seconds;
};

// What drafts gave over windows of at least so many decode steps of a request: the last whole window is shown.
class AcceptanceMeter {
 public:
  explicit AcceptanceMeter(SchedulerMetrics& metrics) : metrics_(&metrics) {}
  void add(std::int32_t drafts, std::int32_t accepted);

 private:
  static constexpr std::int64_t kWindowSteps = 64;
  SchedulerMetrics* metrics_;
  std::int64_t steps_ = 0, drafts_ = 0, accepted_ = 0;
};

// Tokens per second over windows of at least a second.
class ThroughputMeter {
 public:
  explicit ThroughputMeter(Gauge& gauge) : gauge_(&gauge) {}
  void add(std::int64_t tokens, std::int64_t now_us);
  // Nothing runs: the next window starts with the next token.
  void on_idle();

 private:
  static constexpr std::int64_t kWindowUs = 1'000'000;
  Gauge* gauge_;
  std::int64_t window_start_us_ = -1;
  std::int64_t tokens_ = 0;
};

}  // namespace levada::sched
