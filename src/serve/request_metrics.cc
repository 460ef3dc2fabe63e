#include "serve/request_metrics.h"

namespace levada::serve {

namespace {

constexpr double kPerUs = 1e-6;

}  // namespace

RequestMetrics::RequestMetrics(Metrics& metrics) {
  const std::vector<double> seconds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256};
  const std::vector<double> gaps = {0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1, 2};
  for (const bool streaming : {false, true}) {
    const Metrics::Labels labels = {{"is_streaming", streaming ? "true" : "false"}};
    Series& series = by_mode_[streaming];
    series.requests = &metrics.counter("sglang:num_requests_total", "Requests taken in", labels);
    series.prompt_tokens = &metrics.counter("sglang:prompt_tokens_total", "Prompt tokens of ended requests", labels);
    series.generation_tokens =
        &metrics.counter("sglang:generation_tokens_total", "Tokens generated for ended requests", labels);
    series.cached_tokens =
        &metrics.counter("sglang:cached_tokens_total", "Prompt tokens of ended requests found in the cache",
                         {{"cache_source", "device"}, {"is_streaming", streaming ? "true" : "false"}});
    series.first_token_s = &metrics.histogram("sglang:time_to_first_token_seconds",
                                              "From a request's arrival to its first token", seconds, labels);
    series.inter_token_s = &metrics.histogram("sglang:inter_token_latency_seconds",
                                              "Time between deltas over the tokens they bring", gaps, labels);
    series.per_token_s = &metrics.histogram("sglang:request_time_per_output_token_seconds",
                                            "A request's time per token after its first", gaps, labels);
    series.latency_s = &metrics.histogram("sglang:e2e_request_latency_seconds", "From a request's arrival to its end",
                                          seconds, labels);
  }
  const auto realtime = [&](const char* mode) {
    return &metrics.counter("sglang:realtime_tokens_total", "Tokens as they are computed, found or generated",
                            {{"mode", mode}});
  };
  prefill_compute_ = realtime("prefill_compute");
  prefill_cache_ = realtime("prefill_cache");
  decode_ = realtime("decode");
  aborted_ = &metrics.counter("sglang:num_aborted_requests_total", "Requests ended by client, operator or failure");
}

void RequestMetrics::on_delta(bool streaming, const core::OutputDelta& delta, bool first, std::int64_t previous_us,
                              std::int64_t now_us) {
  if (delta.token_ids.empty()) return;
  decode_->add(static_cast<double>(delta.token_ids.size()));
  if (first) {
    prefill_compute_->add(delta.prompt_tokens - delta.cached_tokens);
    prefill_cache_->add(delta.cached_tokens);
  }
  const double gap_s = static_cast<double>(now_us - previous_us) * kPerUs;
  if (first) {
    by_mode_[streaming].first_token_s->observe(gap_s);
  } else {
    by_mode_[streaming].inter_token_s->observe(gap_s / static_cast<double>(delta.token_ids.size()));
  }
}

void RequestMetrics::on_finish(bool streaming, const AnswerFold& fold) {
  Series& series = by_mode_[streaming];
  series.prompt_tokens->add(fold.prompt_tokens);
  series.generation_tokens->add(fold.completion_tokens);
  series.cached_tokens->add(fold.cached_tokens);
  series.latency_s->observe(static_cast<double>(fold.latency_us) * kPerUs);
  if (fold.completion_tokens > 1) {
    series.per_token_s->observe(static_cast<double>(fold.latency_us - fold.first_latency_us) * kPerUs /
                                (fold.completion_tokens - 1));
  }
  const core::FinishReason reason = fold.finish->reason;
  if (reason == core::FinishReason::kAbort || reason == core::FinishReason::kError) on_abort();
}

}  // namespace levada::serve
