// What: every request and reply of the registry, as plain structs. `fields()` lists a struct's members once, under their
// wire names: JSON, hashing and documentation are generated from that list.
// Owner: values.
// Thread: any.
// Invariant: metadata only, never a tensor's bytes. A request names its reply (`Reply`) and its operation (`kOp`).
// Format: docs/formats/registry.md. Positions (source_index) count from 0 in the plan's order; cursors are positions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/sample_ref.h"
#include "fanout/states.h"

namespace levada::fanout {

// Shared because a ref never changes once captured, and its entry, its leases and their replies all name it.
using RefPtr = std::shared_ptr<const core::SampleRef>;

enum class Role : std::uint8_t { kConsumer, kProducer };

// Which session speaks. Every call of a consumer after register_consumer carries it.
struct SessionKey {
  std::string session_id;
  std::int64_t session_epoch = 0;
  template <class V>
  static void fields(V&& v) {
    v("session_id", &SessionKey::session_id);
    v("session_epoch", &SessionKey::session_epoch);
  }
};

// Which operation of the session: 1, 2, 3 …; the number is used up only by a success. The same number with the same
// body again gets the stored reply. acquire and heartbeat carry none: repeating them changes nothing, and a waiting
// acquire must not stand in the way of an acknowledgement.
struct OpKey {
  std::string session_id;
  std::int64_t session_epoch = 0;
  std::int64_t op = 0;
  template <class V>
  static void fields(V&& v) {
    v("session_id", &OpKey::session_id);
    v("session_epoch", &OpKey::session_epoch);
    v("op", &OpKey::op);
  }
};

struct OkReply {
  bool ok = true;
  template <class V>
  static void fields(V&& v) {
    v("ok", &OkReply::ok);
  }
};

// --- consumers -------------------------------------------------------------------------------------------------------

struct RegisterReply {
  std::string session_id;
  std::int64_t session_epoch = 0;
  std::int64_t registry_epoch = 0;
  std::int64_t cursor = 0;  // first position not acknowledged
  std::int64_t step = 0;    // optimizer steps acknowledged
  std::int64_t total_samples = 0;
  std::int64_t lease_ttl_ms = 0;
  std::int64_t heartbeat_ms = 0;
  std::int64_t session_ttl_ms = 0;
  template <class V>
  static void fields(V&& v) {
    v("session_id", &RegisterReply::session_id);
    v("session_epoch", &RegisterReply::session_epoch);
    v("registry_epoch", &RegisterReply::registry_epoch);
    v("cursor", &RegisterReply::cursor);
    v("step", &RegisterReply::step);
    v("total_samples", &RegisterReply::total_samples);
    v("lease_ttl_ms", &RegisterReply::lease_ttl_ms);
    v("heartbeat_ms", &RegisterReply::heartbeat_ms);
    v("session_ttl_ms", &RegisterReply::session_ttl_ms);
  }
};

// The same client_nonce again gives the same session while it lives. Another nonce is refused (DUPLICATE_CONSUMER) until
// the old session expired, unless `takeover` is set: then the old session is fenced.
struct RegisterRequest {
  static constexpr std::string_view kOp = "register_consumer";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = RegisterReply;
  std::string run_id;
  std::string consumer_id;
  std::string contract_digest;
  std::string source_digest;
  std::string recipe_hash;
  std::int64_t lookbehind = 2;
  std::int64_t lookahead = 40;
  std::int64_t prefetch_depth = 8;
  std::int64_t max_outstanding = 8;
  std::int64_t quantum = 1;
  std::string client_nonce;
  bool takeover = false;
  template <class V>
  static void fields(V&& v) {
    v("run_id", &RegisterRequest::run_id);
    v("consumer_id", &RegisterRequest::consumer_id);
    v("contract_digest", &RegisterRequest::contract_digest);
    v("source_digest", &RegisterRequest::source_digest);
    v("recipe_hash", &RegisterRequest::recipe_hash);
    v("lookbehind", &RegisterRequest::lookbehind);
    v("lookahead", &RegisterRequest::lookahead);
    v("prefetch_depth", &RegisterRequest::prefetch_depth);
    v("max_outstanding", &RegisterRequest::max_outstanding);
    v("quantum", &RegisterRequest::quantum);
    v("client_nonce", &RegisterRequest::client_nonce);
    v.optional("takeover", &RegisterRequest::takeover);
  }
};

struct CursorReply {
  std::int64_t cursor = 0;
  template <class V>
  static void fields(V&& v) {
    v("cursor", &CursorReply::cursor);
  }
};

// Rewinds the cursor to a recorded checkpoint; (step 0, cursor 0) is always recorded.
struct ResumeRequest {
  static constexpr std::string_view kOp = "resume_consumer";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = CursorReply;
  OpKey key;
  std::int64_t durable_cursor = 0;
  std::int64_t step = 0;
  template <class V>
  static void fields(V&& v) {
    v.flat(&ResumeRequest::key);
    v("durable_cursor", &ResumeRequest::durable_cursor);
    v("step", &ResumeRequest::step);
  }
};

struct GrantedLease {
  std::string token;
  std::int64_t source_index = 0;
  std::string source_sample_id;
  std::int64_t generation = 0;
  RefPtr ref;
  bool ready_at_request = false;  // there when the first acquire for it came: nobody waited
  std::int64_t ttl_ms = 0;        // from the moment the registry answered; the reader counts from its send
  template <class V>
  static void fields(V&& v) {
    v("token", &GrantedLease::token);
    v("source_index", &GrantedLease::source_index);
    v("source_sample_id", &GrantedLease::source_sample_id);
    v("generation", &GrantedLease::generation);
    v("ref", &GrantedLease::ref);
    v("ready_at_request", &GrantedLease::ready_at_request);
    v("ttl_ms", &GrantedLease::ttl_ms);
  }
};

// Three different answers: leases; none yet (`head` says what the position waits for); none ever (`head` == eof).
struct AcquireReply {
  std::vector<GrantedLease> leases;
  Head head = Head::kAbsent;
  std::vector<std::string> lost;  // tokens held for these positions whose bytes are gone
  template <class V>
  static void fields(V&& v) {
    v("leases", &AcquireReply::leases);
    v("head", &AcquireReply::head);
    v("lost", &AcquireReply::lost);
  }
};

// The longest ready run from `from` on; waits up to `wait_ms` for the first. A position held already comes back under the
// same token, extended.
struct AcquireRequest {
  static constexpr std::string_view kOp = "acquire";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = AcquireReply;
  SessionKey key;
  std::int64_t from = 0;
  std::int64_t max_n = 1;
  std::int64_t wait_ms = 0;  // at most 20000
  template <class V>
  static void fields(V&& v) {
    v.flat(&AcquireRequest::key);
    v("from", &AcquireRequest::from);
    v("max_n", &AcquireRequest::max_n);
    v.optional("wait_ms", &AcquireRequest::wait_ms);
  }
};

struct HeartbeatReply {
  std::map<std::string, std::int64_t> renewed;  // token -> ttl_ms
  std::vector<std::string> lost;
  template <class V>
  static void fields(V&& v) {
    v("renewed", &HeartbeatReply::renewed);
    v("lost", &HeartbeatReply::lost);
  }
};

struct HeartbeatRequest {
  static constexpr std::string_view kOp = "heartbeat";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = HeartbeatReply;
  SessionKey key;
  bool ready = false;  // the model is built: initializing becomes ready
  std::vector<std::string> tokens;
  template <class V>
  static void fields(V&& v) {
    v.flat(&HeartbeatRequest::key);
    v("ready", &HeartbeatRequest::ready);
    v("tokens", &HeartbeatRequest::tokens);
  }
};

struct AbandonReply {
  std::int64_t released = 0;
  template <class V>
  static void fields(V&& v) {
    v("released", &AbandonReply::released);
  }
};

// Ends leases early. reason "verified" says that the bytes were read and checked; anything else is for the log.
struct AbandonRequest {
  static constexpr std::string_view kOp = "abandon_leases";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = AbandonReply;
  OpKey key;
  std::vector<std::string> tokens;
  std::string reason;
  template <class V>
  static void fields(V&& v) {
    v.flat(&AbandonRequest::key);
    v("tokens", &AbandonRequest::tokens);
    v("reason", &AbandonRequest::reason);
  }
};

struct EntryReply {
  EntryState state = EntryState::kAbsent;
  template <class V>
  static void fields(V&& v) {
    v("state", &EntryReply::state);
  }
};

// "I could not read it": the generation is never granted again, and captured anew once its other leases ended.
struct ReportLostRequest {
  static constexpr std::string_view kOp = "report_lost";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = EntryReply;
  OpKey key;
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  LossReason reason = LossReason::kGone;
  template <class V>
  static void fields(V&& v) {
    v.flat(&ReportLostRequest::key);
    v("source_index", &ReportLostRequest::source_index);
    v("generation", &ReportLostRequest::generation);
    v("reason", &ReportLostRequest::reason);
  }
};

// Acknowledges m >= 1 quanta: compare-and-set on old_cursor; step = stored step + m.
struct AdvanceRequest {
  static constexpr std::string_view kOp = "release_and_advance";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = CursorReply;
  OpKey key;
  std::int64_t old_cursor = 0;
  std::int64_t new_cursor = 0;
  std::int64_t step = 0;
  bool optimizer_durable = true;
  template <class V>
  static void fields(V&& v) {
    v.flat(&AdvanceRequest::key);
    v("old_cursor", &AdvanceRequest::old_cursor);
    v("new_cursor", &AdvanceRequest::new_cursor);
    v("step", &AdvanceRequest::step);
    v("optimizer_durable", &AdvanceRequest::optimizer_durable);
  }
};

// A durable checkpoint of step `step`; sent before that step is acknowledged. cursor == step * quantum.
struct CheckpointRequest {
  static constexpr std::string_view kOp = "checkpoint";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = OkReply;
  OpKey key;
  std::int64_t step = 0;
  std::int64_t cursor = 0;
  std::string uri;
  template <class V>
  static void fields(V&& v) {
    v.flat(&CheckpointRequest::key);
    v("step", &CheckpointRequest::step);
    v("cursor", &CheckpointRequest::cursor);
    v("uri", &CheckpointRequest::uri);
  }
};

struct CompleteReply {
  bool ok = true;
  std::int64_t skipped_tail = 0;
  template <class V>
  static void fields(V&& v) {
    v("ok", &CompleteReply::ok);
    v("skipped_tail", &CompleteReply::skipped_tail);
  }
};

struct CompleteConsumerRequest {
  static constexpr std::string_view kOp = "complete_consumer";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = CompleteReply;
  OpKey key;
  std::int64_t step = 0;
  std::int64_t cursor = 0;
  bool allow_partial = false;  // end before the plan's end (max_steps)
  template <class V>
  static void fields(V&& v) {
    v.flat(&CompleteConsumerRequest::key);
    v("step", &CompleteConsumerRequest::step);
    v("cursor", &CompleteConsumerRequest::cursor);
    v.optional("allow_partial", &CompleteConsumerRequest::allow_partial);
  }
};

struct FailConsumerRequest {
  static constexpr std::string_view kOp = "fail_consumer";
  static constexpr Role kRole = Role::kConsumer;
  using Reply = OkReply;
  OpKey key;
  std::string reason;
  template <class V>
  static void fields(V&& v) {
    v.flat(&FailConsumerRequest::key);
    v("reason", &FailConsumerRequest::reason);
  }
};

// --- producer --------------------------------------------------------------------------------------------------------

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
  bool journal = true;  // the server answers a repeated generation from its journal: the retry keeps the generation
  template <class V>
  static void fields(V&& v) {
    v("source_index", &FailCaptureRequest::source_index);
    v("generation", &FailCaptureRequest::generation);
    v("nonce", &FailCaptureRequest::nonce);
    v("error", &FailCaptureRequest::error);
    v("retryable", &FailCaptureRequest::retryable);
    v("written", &FailCaptureRequest::written);
    v.optional("journal", &FailCaptureRequest::journal);
  }
};

struct Removal {
  std::int64_t source_index = 0;
  std::string source_sample_id;
  std::int64_t generation = 0;
  std::vector<std::string> names;    // of the objects to remove
  std::vector<std::string> servers;  // every capture server this generation was sent to
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

using Request =
    std::variant<RegisterRequest, ResumeRequest, AcquireRequest, HeartbeatRequest, AbandonRequest, ReportLostRequest,
                 AdvanceRequest, CheckpointRequest, CompleteConsumerRequest, FailConsumerRequest, ClaimRequest,
                 MarkCommittingRequest, CompleteCaptureRequest, FailCaptureRequest, RemovalsRequest,
                 FinishEvictionRequest, ServerLostRequest, SnapshotRequest, DrainRequest, AbortRequest>;
using Reply = std::variant<RegisterReply, CursorReply, AcquireReply, HeartbeatReply, AbandonReply, EntryReply, OkReply,
                           CompleteReply, ClaimReply, FailCaptureReply, RemovalsReply, ServerLostReply, SnapshotReply>;

}  // namespace levada::fanout
