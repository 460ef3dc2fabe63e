// What: Driver, a scripted producer and scripted consumers around one Machine: each call is one protocol operation.
// Owner: tests.
// Thread: the test's.
// Invariant: after every call the audit is clean, or the test fails naming the broken invariant.
// Time stands still unless the test moves `now_us`.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanout/audit.h"
#include "fanout/machine.h"

namespace levada::fanout {

inline constexpr std::int64_t kSecond = 1'000'000;  // in microseconds
inline constexpr std::int64_t kBytesPerToken = 10;

// T samples of one token each, so that a sample is 10 bytes.
inline RunConfig small_config(std::vector<ConsumerSpec> consumers, std::int64_t total, std::int64_t max_live_refs) {
  RunConfig config;
  config.run_id = "run";
  config.store_id = "store";
  config.contract_digest = "contract";
  config.source_digest = "plan";
  for (std::int64_t p = 0; p < total; ++p) config.sources.push_back({"run:p" + std::to_string(p), 1});
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    if (consumers[i].consumer_id.empty()) consumers[i].consumer_id = std::string(1, static_cast<char>('a' + i));
  }
  config.consumers = std::move(consumers);
  config.max_live_refs = max_live_refs;
  config.max_live_bytes = max_live_refs * kBytesPerToken;
  config.capture_reservation_bytes = kBytesPerToken;
  config.bytes_per_token = kBytesPerToken;
  config.feature_names = {"hidden_states"};
  return config;
}

// A window without extras: lookahead and prefetch just as given.
inline ConsumerSpec spec(std::int64_t quantum, std::int64_t lookahead, std::int64_t prefetch,
                         std::int64_t outstanding) {
  return {"", quantum, 0, lookahead, prefetch, outstanding};
}

inline RefPtr ref_for(const CaptureOrder& order, std::uint64_t incarnation = 1) {
  auto ref = std::make_shared<core::SampleRef>();
  ref->store_id = "store";
  ref->sample_id = order.source_sample_id;
  ref->generation = static_cast<std::uint32_t>(order.generation);
  ref->store_url = "tcp://server";
  ref->incarnation = incarnation;
  ref->num_tokens = 1;
  ref->tensors = {{"hidden_states", DType::kU8, {1, 1, 10}, 0}};
  return ref;
}

class Driver {
 public:
  explicit Driver(RunConfig config) : config_(std::make_shared<RunConfig>(std::move(config))) {
    auto opened = Machine::open(config_, {}, now_us);
    LEVADA_CHECK(opened.ok(), opened.status().to_string().c_str());
    machine_ = std::make_unique<Machine>(std::move(*opened));
    sessions.resize(config_->consumers.size());
  }

  Machine& machine() { return *machine_; }
  const RunState& state() const { return machine_->state(); }
  const RunConfig& config() const { return *config_; }
  EntryState entry(std::int64_t p) const { return state().entry(p).row.state; }
  std::int64_t cursor(std::size_t c) const { return state().consumers[c].row.cursor; }
  ConsumerState consumer(std::size_t c) const { return state().consumers[c].row.state; }

  template <class R>
  Outcome<typename R::Reply> call(const R& request) {
    auto outcome = machine_->call(request, now_us);
    check();
    return outcome;
  }
  void check() {
    for (const std::string& problem : audit(state(), now_us)) ADD_FAILURE() << problem;
  }
  void advance_us(std::int64_t delta_us) {
    now_us += delta_us;
    machine_->on_time(now_us);
    check();
  }

  RegisterRequest registration(std::size_t c, std::string nonce = "nonce") const {
    const ConsumerSpec& s = config_->consumers[c];
    return {config_->run_id,  s.consumer_id, config_->contract_digest, config_->source_digest, "recipe",
            s.lookbehind,     s.lookahead,   s.prefetch_depth,         s.max_outstanding,      s.quantum,
            std::move(nonce), false};
  }
  // Registers and reports ready.
  void join(std::size_t c) {
    auto reply = call(registration(c));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    sessions[c] = {reply->session_id, reply->session_epoch, 0};
    ASSERT_TRUE(call(HeartbeatRequest{key(c), true, {}}).ok());
  }
  void join_all() {
    for (std::size_t c = 0; c < sessions.size(); ++c) join(c);
  }
  SessionKey key(std::size_t c) const { return {sessions[c].session_id, sessions[c].session_epoch}; }
  // The key of the next operation; done() uses the number up.
  OpKey next(std::size_t c) const { return {sessions[c].session_id, sessions[c].session_epoch, sessions[c].op + 1}; }
  template <class T>
  Outcome<T> done(std::size_t c, Outcome<T> outcome) {
    if (outcome.ok()) sessions[c].op += 1;
    return outcome;
  }

  Outcome<AcquireReply> acquire(std::size_t c, std::int64_t from, std::int64_t n, std::int64_t wait_ms = 0) {
    return call(AcquireRequest{key(c), from, n, wait_ms});
  }
  AdvanceRequest ack_request(std::size_t c, std::int64_t quanta = 1) const {
    const ConsumerRow& row = state().consumers[c].row;
    return {next(c), row.cursor, row.cursor + quanta * row.quantum, row.step + quanta, true};
  }
  Outcome<CursorReply> ack(std::size_t c, std::int64_t quanta = 1) { return done(c, call(ack_request(c, quanta))); }
  Outcome<CompleteReply> complete(std::size_t c, bool allow_partial = false) {
    const ConsumerRow& row = state().consumers[c].row;
    return done(c, call(CompleteConsumerRequest{next(c), row.step, row.cursor, allow_partial}));
  }
  std::vector<CaptureOrder> claim(std::int64_t n = 1, const std::string& worker = "w") {
    auto reply = call(ClaimRequest{worker, "http://server", ++claim_id_, n, 0});
    EXPECT_TRUE(reply.ok());
    return reply.ok() ? reply->requests : std::vector<CaptureOrder>();
  }
  void finish(const CaptureOrder& order) {
    ASSERT_TRUE(call(MarkCommittingRequest{order.source_index, order.generation, order.nonce, ref_for(order),
                                           order.reserved_bytes})
                    .ok());
    ASSERT_TRUE(call(CompleteCaptureRequest{order.source_index, order.generation, order.nonce}).ok());
  }
  // Captures until nothing more may be; returns the positions in the order they were handed out.
  std::vector<std::int64_t> capture_all() {
    std::vector<std::int64_t> positions;
    for (auto orders = claim(); !orders.empty(); orders = claim()) {
      positions.push_back(orders[0].source_index);
      finish(orders[0]);
    }
    return positions;
  }
  // Removes whatever is to be removed now; returns how much.
  std::size_t remove_all() {
    auto reply = call(RemovalsRequest{1000, 0});
    EXPECT_TRUE(reply.ok());
    for (const Removal& removal : reply->removals) {
      EXPECT_TRUE(call(FinishEvictionRequest{removal.source_index, removal.generation, {}}).ok());
    }
    return reply->removals.size();
  }

  std::int64_t now_us = 1;
  std::vector<OpKey> sessions;

 private:
  std::shared_ptr<const RunConfig> config_;
  std::unique_ptr<Machine> machine_;
  std::int64_t claim_id_ = 0;
};

// `again` is the first further attempt at what `order` asked for, under its generation.
inline void expect_sent_again(const CaptureOrder& again, const CaptureOrder& order) {
  EXPECT_EQ(again.source_index, order.source_index);
  EXPECT_EQ(again.generation, order.generation);
  EXPECT_EQ(again.attempt, 1);
  EXPECT_TRUE(again.replace);
}

}  // namespace levada::fanout
