// What: RunConfig, what one fan-out run is: its plan, its consumers, its limits and its times. Fixed for the run's life.
// Owner: a value; the Machine keeps a copy.
// Thread: any.
// Invariant: check() passed before a Machine is made from it.
// Identity: what identity_of() lists may not differ between two starts of one run; times and policies may.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace levada::fanout {

struct ConsumerSpec {
  std::string consumer_id;
  std::int64_t quantum = 1;  // positions per optimizer step: batch * accumulation * data-parallel size
  std::int64_t lookbehind = 2;
  std::int64_t lookahead = 40;
  std::int64_t prefetch_depth = 8;
  std::int64_t max_outstanding = 8;
};

struct Source {
  std::string sample_id;     // "{run_id}:{task_id}", ":e{epoch}" appended from the second epoch on
  std::int64_t ntokens = 0;  // rows of its features, or an upper bound
};

struct Times {
  std::int64_t lease_ttl_us = 30'000'000;
  std::int64_t heartbeat_us = 5'000'000;
  std::int64_t session_ttl_us = 30'000'000;
  std::int64_t detach_grace_us = 300'000'000;
  std::int64_t registration_timeout_us = 300'000'000;
  std::int64_t capture_timeout_us = 300'000'000;
  std::int64_t retry_backoff_us = 50'000;
  std::int64_t removal_interval_us = 500'000;  // between two tries to remove the same keys
};

struct RunConfig {
  std::string run_id;
  std::string store_id;
  std::string contract_digest;
  std::string source_digest;
  std::vector<Source> sources;  // by position
  std::vector<ConsumerSpec> consumers;

  std::int64_t max_live_refs = 48;
  std::int64_t max_live_bytes = 0;
  std::int64_t capture_reservation_bytes = 128 << 20;  // no sample may need more
  std::int64_t bytes_per_token = 0;                    // of all features together: a capture's size is exact
  std::vector<std::string> feature_names;              // every object of a sample

  std::int64_t max_capture_retries = 2;
  // How many positions may fail for good and be passed over by every consumer, counted; with one more the run fails. 0:
  // none; a consumer that meets one is told CAPTURE_FAILED.
  std::int64_t skip_failed = 0;
  std::int64_t removal_tries = 40;
  // The capture servers answer a generation that they are sent again from their journal, with one writer per sample at a
  // time: so that a lost reply, or a producer's death, costs no generation.
  bool servers_keep_journal = true;
  // At this opening no capture server that an earlier one knew lives any more: nothing is written late.
  bool servers_are_new = false;
  // This opening is a launch of its own: consumers that failed in an earlier one, and a run that failed by them, get another
  // chance.
  bool retry_failed = false;
  bool abort_on_consumer_failure = false;
  std::int64_t max_lead = 0;  // a leader waits when this many positions ahead of the slowest consumer; 0: never
  Times times;

  std::int64_t total() const { return static_cast<std::int64_t>(sources.size()); }
  std::int64_t bytes_of(std::int64_t position) const {
    return sources[static_cast<std::size_t>(position)].ntokens * bytes_per_token;
  }
  std::int64_t max_entry_bytes() const;
};

// kInvalidArgument naming the field at fault and the value it needs, e.g. the least max_live_refs with which no consumer
// can block another.
Status check(const RunConfig& config);

// (field, value) of everything that must be the same when a run is opened again.
std::vector<std::pair<std::string, std::string>> identity_of(const RunConfig& config);

}  // namespace levada::fanout
