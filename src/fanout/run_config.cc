#include "fanout/run_config.h"

#include <algorithm>
#include <limits>
#include <set>

namespace levada::fanout {

namespace {

constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 60;

std::string text(std::int64_t number) { return std::to_string(number); }

bool is_consumer_id(const std::string& id) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (id.empty() || id.size() > 128 || !letter(id[0])) return false;
  return std::all_of(id.begin(), id.end(), [&](char c) { return letter(c) || c == '_' || c == '.' || c == '-'; });
}

Status check_consumer(const ConsumerSpec& spec) {
  const std::string field = "consumers[" + spec.consumer_id + "]";
  if (!is_consumer_id(spec.consumer_id)) {
    return invalid_argument("a consumer id is 1 to 128 of A-Z a-z 0-9 _ . - and begins with a letter or digit, got \"" +
                                spec.consumer_id + "\"",
                            "consumer_id");
  }
  if (spec.quantum < 1) return invalid_argument("must be at least 1", field + ".quantum");
  if (spec.lookbehind < 0) return invalid_argument("must be at least 0", field + ".window_lookbehind");
  if (spec.lookahead + 1 < spec.quantum) {
    return invalid_argument("must be at least " + text(spec.quantum - 1) + ", so that one optimizer step (" +
                                text(spec.quantum) + " samples) fits the window",
                            field + ".window_lookahead");
  }
  if (spec.max_outstanding < spec.quantum) {
    return invalid_argument("must be at least " + text(spec.quantum) + ", the samples of one optimizer step",
                            field + ".max_outstanding_per_consumer");
  }
  if (spec.prefetch_depth < 0 || spec.prefetch_depth > spec.lookahead + 1) {
    return invalid_argument("must be 0 to window_lookahead + 1 = " + text(spec.lookahead + 1),
                            field + ".max_prefetch_per_consumer");
  }
  return {};
}

Status check_sources(const RunConfig& config) {
  if (config.sources.empty()) return invalid_argument("the plan has no samples", "sources");
  std::set<std::string> ids;
  for (std::size_t i = 0; i < config.sources.size(); ++i) {
    const Source& source = config.sources[i];
    const std::string field = "sources[" + std::to_string(i) + "]";
    if (source.sample_id.empty()) return invalid_argument("a sample needs an id", field);
    if (!ids.insert(source.sample_id).second) return invalid_argument("id " + source.sample_id + " twice", field);
    if (source.ntokens < 1) return invalid_argument("a sample has at least one token", field + ".ntokens");
    if (source.ntokens > kMaxTotalBytes / config.bytes_per_token) {
      return invalid_argument("a sample cannot have " + text(source.ntokens) + " tokens", field + ".ntokens");
    }
  }
  return {};
}

Status check_times(const Times& times) {
  if (times.heartbeat_us <= 0 || times.heartbeat_us * 2 > times.lease_ttl_us) {
    return invalid_argument("must be at least twice consumer_heartbeat_interval_s", "lease_ttl_s");
  }
  if (times.session_ttl_us <= times.heartbeat_us) {
    return invalid_argument("must be more than consumer_heartbeat_interval_s", "consumer_heartbeat_timeout_s");
  }
  if (times.detach_grace_us < 0 || times.registration_timeout_us <= 0 || times.capture_timeout_us <= 0 ||
      times.retry_backoff_us < 0 || times.removal_interval_us <= 0) {
    return invalid_argument("a time limit of the run is negative or zero", "windowed_fanout");
  }
  return {};
}

// Every consumer's next step must fit at once: else two half-filled steps could hold each other's space for ever.
Status check_limits(const RunConfig& config) {
  std::int64_t together = 0;
  for (const ConsumerSpec& spec : config.consumers) together += spec.quantum;
  if (config.max_live_refs < together) {
    return invalid_argument("must be at least " + text(together) +
                                ", the samples of one optimizer step of every consumer, got " +
                                text(config.max_live_refs),
                            "max_live_refs");
  }
  const std::int64_t entry = config.max_entry_bytes();
  if (entry > config.capture_reservation_bytes) {
    return invalid_argument("must be at least " + text(entry) + ", the bytes of the longest sample, got " +
                                text(config.capture_reservation_bytes),
                            "capture_reservation_bytes");
  }
  if (config.max_live_bytes / entry < together) {
    return invalid_argument(
        "must be at least " + text(together) + " * " + text(entry) +
            " (samples of one optimizer step of every consumer * bytes of the longest sample), got " +
            text(config.max_live_bytes),
        "max_live_bytes");
  }
  return {};
}

}  // namespace

std::int64_t RunConfig::max_entry_bytes() const {
  std::int64_t most = 1;
  for (std::int64_t p = 0; p < total(); ++p) most = std::max(most, bytes_of(p));
  return most;
}

Status check(const RunConfig& config) {
  if (config.run_id.empty()) return invalid_argument("must not be empty", "run_id");
  if (config.store_id.empty()) return invalid_argument("must not be empty", "store_id");
  if (config.consumers.empty()) return invalid_argument("a run needs at least one consumer", "consumers");
  std::set<std::string> ids;
  for (const ConsumerSpec& spec : config.consumers) {
    LEVADA_RETURN_IF_ERROR(check_consumer(spec));
    if (!ids.insert(spec.consumer_id).second) {
      return invalid_argument("consumer " + spec.consumer_id + " is named twice", "consumers");
    }
  }
  if (config.bytes_per_token < 1) return invalid_argument("must be at least 1", "bytes_per_token");
  if (config.feature_names.empty()) return invalid_argument("a sample has at least one feature", "feature_names");
  LEVADA_RETURN_IF_ERROR(check_sources(config));
  LEVADA_RETURN_IF_ERROR(check_times(config.times));
  if (config.max_capture_retries < 0) return invalid_argument("must be at least 0", "max_capture_retries");
  if (config.skip_failed < 0) return invalid_argument("must be at least 0", "skip_failed");
  if (config.removal_tries < 1) return invalid_argument("must be at least 1", "drain_tries");
  for (const ConsumerSpec& spec : config.consumers) {
    if (config.max_lead != 0 && config.max_lead < spec.quantum) {
      return invalid_argument("must be 0 or at least " + text(spec.quantum) + ", one optimizer step", "max_lead");
    }
  }
  return check_limits(config);
}

std::vector<std::pair<std::string, std::string>> identity_of(const RunConfig& config) {
  std::vector<std::string> ids;
  for (const ConsumerSpec& spec : config.consumers) ids.push_back(spec.consumer_id);
  std::sort(ids.begin(), ids.end());
  std::string joined;
  for (const std::string& id : ids) joined += (joined.empty() ? "" : ",") + id;
  return {{"run_id", config.run_id},
          {"store_id", config.store_id},
          {"contract_digest", config.contract_digest},
          {"source_digest", config.source_digest},
          {"total_samples", text(config.total())},
          {"expected_consumers", joined},
          {"max_live_refs", text(config.max_live_refs)},
          {"max_live_bytes", text(config.max_live_bytes)},
          {"capture_reservation_bytes", text(config.capture_reservation_bytes)}};
}

}  // namespace levada::fanout
