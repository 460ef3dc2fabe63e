// What: requests and replies of the producer and of operators, as plain structs.
// Owner: values.
// Thread: any.
// Invariant: as in fanout/consumer_messages.h.
// Format: docs/formats/registry.md. Positions (source_index) count from 0 in the plan's order; cursors are positions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fanout/consumer_messages.h"

namespace levada::fanout {

struct CaptureOrder {
  std::int64_t source_index = 0;
  std::string source_sample_id;
  std::int64_t generation = 0;
  std::int64_t priority = 1;                  // 0: some consumer needs or waits for it; 1: prefetch
  std::vector<std::string> demand_consumers;  // whose next quantum it is in, or who waits
  std::int64_t reserved_bytes = 0;
  std::int64_t attempt = 0;  // of this generation
  bool replace = false;      // an earlier attempt may have written this generation's keys
  std::string nonce;         // names this attempt in mark_committing, complete_capture and fail_capture
  template <class V>
  static void fields(V&& v) {
    v("source_index", &CaptureOrder::source_index);
    v("source_sample_id", &CaptureOrder::source_sample_id);
    v("generation", &CaptureOrder::generation);
    v("priority", &CaptureOrder::priority);
    v("demand_consumers", &CaptureOrder::demand_consumers);
    v("reserved_bytes", &CaptureOrder::reserved_bytes);
    v("attempt", &CaptureOrder::attempt);
    v("replace", &CaptureOrder::replace);
    v("nonce", &CaptureOrder::nonce);
  }
};

struct ClaimReply {
  std::vector<CaptureOrder> requests;
  bool drain = false;  // nothing will ever be handed out again
  template <class V>
  static void fields(V&& v) {
    v("requests", &ClaimReply::requests);
    v("drain", &ClaimReply::drain);
  }
};

// Hands out captures, each with its slot and bytes reserved. The same (worker, claim_id) again answers what that claim
// got and has not finished; so a lost reply loses nothing.
struct ClaimRequest {
  static constexpr std::string_view kOp = "claim_batch";
  static constexpr Role kRole = Role::kProducer;
  using Reply = ClaimReply;
  std::string worker;
  std::string server;         // the capture server this worker sends to: where removals must go later
  std::int64_t claim_id = 0;  // chosen by the worker, new for each claim
  std::int64_t max_requests = 1;
  std::int64_t wait_ms = 0;
  template <class V>
  static void fields(V&& v) {
    v("worker", &ClaimRequest::worker);
    v("server", &ClaimRequest::server);
    v("claim_id", &ClaimRequest::claim_id);
    v("max_requests", &ClaimRequest::max_requests);
    v.optional("wait_ms", &ClaimRequest::wait_ms);
  }
};

// The reply of the capture server was adopted: its ref becomes durable. state "failed": the ref broke the contract (more
// bytes than reserved) and the position failed for good.
struct MarkCommittingRequest {
  static constexpr std::string_view kOp = "mark_committing";
  static constexpr Role kRole = Role::kProducer;
  using Reply = EntryReply;
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  std::string nonce;
  RefPtr ref;
  std::int64_t bytes = 0;
  template <class V>
  static void fields(V&& v) {
    v("source_index", &MarkCommittingRequest::source_index);
    v("generation", &MarkCommittingRequest::generation);
    v("nonce", &MarkCommittingRequest::nonce);
    v("ref", &MarkCommittingRequest::ref);
    v("bytes", &MarkCommittingRequest::bytes);
  }
};

struct CompleteCaptureRequest {
  static constexpr std::string_view kOp = "complete_capture";
  static constexpr Role kRole = Role::kProducer;
  using Reply = EntryReply;
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  std::string nonce;
  template <class V>
  static void fields(V&& v) {
    v("source_index", &CompleteCaptureRequest::source_index);
    v("generation", &CompleteCaptureRequest::generation);
    v("nonce", &CompleteCaptureRequest::nonce);
  }
};

struct FailCaptureReply {
  EntryState state = EntryState::kAbsent;
  bool retried = false;
  template <class V>
  static void fields(V&& v) {
    v("state", &FailCaptureReply::state);
    v("retried", &FailCaptureReply::retried);
  }
};

struct FailCaptureRequest {
  static constexpr std::string_view kOp = "fail_capture";
  static constexpr Role kRole = Role::kProducer;
  using Reply = FailCaptureReply;
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  std::string nonce;
  std::string error;
  bool retryable = true;
  Written written = Written::kMaybe;  // maybe: the reply was lost
  template <class V>
  static void fields(V&& v) {
    v("source_index", &FailCaptureRequest::source_index);
    v("generation", &FailCaptureRequest::generation);
    v("nonce", &FailCaptureRequest::nonce);
    v("error", &FailCaptureRequest::error);
    v("retryable", &FailCaptureRequest::retryable);
    v("written", &FailCaptureRequest::written);
  }
};

struct Removal {
  std::int64_t source_index = 0;
  std::string source_sample_id;
  std::int64_t generation = 0;
  std::vector<std::string> names;    // of the objects to remove
  std::vector<std::string> servers;  // every capture server this generation was sent to; empty: any of them
  std::string store_url;             // from the ref; empty if the reply never came
  bool garbage = false;              // a burnt generation; false: an evicted entry
  template <class V>
  static void fields(V&& v) {
    v("source_index", &Removal::source_index);
    v("source_sample_id", &Removal::source_sample_id);
    v("generation", &Removal::generation);
    v("names", &Removal::names);
    v("servers", &Removal::servers);
    v("store_url", &Removal::store_url);
    v("garbage", &Removal::garbage);
  }
};

struct RemovalsReply {
  std::vector<Removal> removals;
  bool drained = false;  // the run has ended and nothing is left to remove
  template <class V>
  static void fields(V&& v) {
    v("removals", &RemovalsReply::removals);
    v("drained", &RemovalsReply::drained);
  }
};

// What must be removed now: forced, never probed, answered by finish_evictions. Handed out again if no answer comes.
struct RemovalsRequest {
  static constexpr std::string_view kOp = "claim_removals";
  static constexpr Role kRole = Role::kProducer;
  using Reply = RemovalsReply;
  std::int64_t max_removals = 64;
  std::int64_t wait_ms = 0;
  template <class V>
  static void fields(V&& v) {
    v("max_removals", &RemovalsRequest::max_removals);
    v.optional("wait_ms", &RemovalsRequest::wait_ms);
  }
};

// failed_keys empty: every key is gone (absent counts as gone). Else it stays live and is tried again.
struct FinishEvictionRequest {
  static constexpr std::string_view kOp = "finish_evictions";
  static constexpr Role kRole = Role::kProducer;
  using Reply = EntryReply;
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  std::vector<std::string> failed_keys;
  template <class V>
  static void fields(V&& v) {
    v("source_index", &FinishEvictionRequest::source_index);
    v("generation", &FinishEvictionRequest::generation);
    v("failed_keys", &FinishEvictionRequest::failed_keys);
  }
};

struct ServerLostReply {
  std::int64_t lost = 0;  // ready entries given up
  template <class V>
  static void fields(V&& v) {
    v("lost", &ServerLostReply::lost);
  }
};

// The arena at `store_url` now has this incarnation (0: the server is gone): refs of any other are lost at once.
struct ServerLostRequest {
  static constexpr std::string_view kOp = "server_lost";
  static constexpr Role kRole = Role::kProducer;
  using Reply = ServerLostReply;
  std::string store_url;
  std::uint64_t incarnation = 0;
  template <class V>
  static void fields(V&& v) {
    v("store_url", &ServerLostRequest::store_url);
    v("incarnation", &ServerLostRequest::incarnation);
  }
};

struct ConsumerSnapshot {
  std::string consumer_id;
  ConsumerState state = ConsumerState::kExpected;
  std::int64_t cursor = 0;
  std::int64_t step = 0;
  std::int64_t leases = 0;
  std::int64_t lag = 0;         // positions behind the leader
  std::int64_t blocked_ms = 0;  // acquires that waited, added up
  std::string failure;
  template <class V>
  static void fields(V&& v) {
    v("consumer_id", &ConsumerSnapshot::consumer_id);
    v("state", &ConsumerSnapshot::state);
    v("cursor", &ConsumerSnapshot::cursor);
    v("step", &ConsumerSnapshot::step);
    v("leases", &ConsumerSnapshot::leases);
    v("lag", &ConsumerSnapshot::lag);
    v("blocked_ms", &ConsumerSnapshot::blocked_ms);
    v("failure", &ConsumerSnapshot::failure);
  }
};

struct SnapshotReply {
  RunStatus status = RunStatus::kActive;
  std::string fail_reason;
  bool drained = false;
  std::int64_t total_samples = 0;
  std::vector<ConsumerSnapshot> consumers;
  std::map<std::string, std::int64_t> entries;   // state -> count
  std::map<std::string, std::int64_t> counters;  // names of the spec's §5.12
  std::vector<std::string> stuck;                // "source_index/g{generation}: last error", removals out of tries
  template <class V>
  static void fields(V&& v) {
    v("status", &SnapshotReply::status);
    v("fail_reason", &SnapshotReply::fail_reason);
    v("drained", &SnapshotReply::drained);
    v("total_samples", &SnapshotReply::total_samples);
    v("consumers", &SnapshotReply::consumers);
    v("entries", &SnapshotReply::entries);
    v("counters", &SnapshotReply::counters);
    v("stuck", &SnapshotReply::stuck);
  }
};

struct SnapshotRequest {
  static constexpr std::string_view kOp = "snapshot";
  static constexpr Role kRole = Role::kProducer;
  using Reply = SnapshotReply;
  template <class V>
  static void fields(V&&) {}
};

// No new captures, everything evicted, until nothing is left. Consumers may still acknowledge.
struct DrainRequest {
  static constexpr std::string_view kOp = "drain";
  static constexpr Role kRole = Role::kProducer;
  using Reply = OkReply;
  template <class V>
  static void fields(V&&) {}
};

// The run has failed: every consumer's call answers RUN_FAILED with this reason from now on. Then as drain.
struct AbortRequest {
  static constexpr std::string_view kOp = "abort";
  static constexpr Role kRole = Role::kProducer;
  using Reply = OkReply;
  std::string reason;
  template <class V>
  static void fields(V&& v) {
    v("reason", &AbortRequest::reason);
  }
};

}  // namespace levada::fanout
