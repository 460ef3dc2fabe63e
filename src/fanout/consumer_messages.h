// What: requests and replies of a consumer, as plain structs.
// Owner: values.
// Thread: any.
// Invariant: metadata only, never a tensor's bytes. Each request names its operation (kOp), who may send it (kRole) and its Reply.
// `fields()` lists a struct's members once, under their wire names: JSON and hashing are generated from that list.
// Format: docs/formats/registry.md. Positions (source_index) count from 0 in the plan's order; cursors are positions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
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

// Three different answers: leases or positions to pass over; none yet (`head` says what the position waits for); none ever
// (`head` == eof).
struct AcquireReply {
  std::vector<GrantedLease> leases;
  std::vector<std::int64_t> skipped;  // positions among them that can't be captured (skip_failed): to be passed over
  Head head = Head::kAbsent;
  std::vector<std::string> lost;  // tokens held for these positions whose bytes are gone
  template <class V>
  static void fields(V&& v) {
    v("leases", &AcquireReply::leases);
    v.optional("skipped", &AcquireReply::skipped);
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

}  // namespace levada::fanout
