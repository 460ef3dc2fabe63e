#include "sched/scheduler_metrics.h"

namespace levada::sched {

SchedulerMetrics::SchedulerMetrics(Metrics& m)
    : running_requests(m.gauge("sglang:num_running_reqs", "Requests being computed")),
      queued_requests(m.gauge("sglang:num_queue_reqs", "Requests waiting for admission")),
      used_tokens(m.gauge("sglang:num_used_tokens", "Tokens of KV cache that can't be evicted now")),
      kv_used_tokens(m.gauge("sglang:kv_used_tokens", "The same under SGLang's newer name")),
      available_tokens(m.gauge("sglang:kv_available_tokens", "Tokens of KV cache on free pages")),
      evictable_tokens(m.gauge("sglang:kv_evictable_tokens", "Tokens of KV cache kept for reuse and evictable")),
      max_total_tokens(m.gauge("sglang:max_total_num_tokens", "Tokens the KV cache holds")),
      token_usage(m.gauge("sglang:token_usage", "Share of the KV cache that can't be evicted now")),
      page_size(m.gauge("sglang:page_size", "Tokens per KV page")),
      context_length(m.gauge("sglang:context_len", "Longest prompt plus output, in tokens")),
      cache_hit_rate(m.gauge("sglang:cache_hit_rate", "Cached share of the input admitted in the last prefill")),
      generation_throughput(m.gauge("sglang:gen_throughput", "Generated tokens per second")),
      spec_accept_length(m.gauge("sglang:spec_accept_length", "Tokens per decode step of a request, its own included")),
      spec_accept_rate(m.gauge("sglang:spec_accept_rate", "Accepted share of the drafts verified")),
      spec_drafts(m.counter("levada:spec_draft_tokens_total", "Drafts verified")),
      spec_accepted(m.counter("levada:spec_accepted_tokens_total", "Drafts accepted")),
      retracted_requests(m.counter("sglang:num_retracted_requests_total", "Requests sent back to the queue for pages")),
      evicted_tokens(m.counter("sglang:evicted_tokens_total", "Cached tokens given up for new ones")),
      queue_time_seconds(m.histogram("sglang:queue_time_seconds", "From arrival to first admission",
                                     {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120})) {}

void AcceptanceMeter::add(std::int32_t drafts, std::int32_t accepted) {
  ++steps_;
  drafts_ += drafts;
  accepted_ += accepted;
  metrics_->spec_drafts.add(drafts);
  metrics_->spec_accepted.add(accepted);
  if (steps_ < kWindowSteps) return;
  metrics_->spec_accept_length.set(1 + static_cast<double>(accepted_) / static_cast<double>(steps_));
  metrics_->spec_accept_rate.set(drafts_ > 0 ? static_cast<double>(accepted_) / static_cast<double>(drafts_) : 0);
  steps_ = drafts_ = accepted_ = 0;
}

void ThroughputMeter::add(std::int64_t tokens, std::int64_t now_us) {
  if (window_start_us_ < 0) window_start_us_ = now_us;
  tokens_ += tokens;
  const std::int64_t elapsed_us = now_us - window_start_us_;
  if (elapsed_us < kWindowUs) return;
  gauge_->set(static_cast<double>(tokens_) * 1e6 / static_cast<double>(elapsed_us));
  window_start_us_ = now_us;
  tokens_ = 0;
}

void ThroughputMeter::on_idle() {
  if (window_start_us_ < 0) return;
  window_start_us_ = -1;
  tokens_ = 0;
  gauge_->set(0);
}

}  // namespace levada::sched
