// What: a small run for the consumer's tests: its contract and plan, samples of known bytes, and a capture of them into an
// arena without any server.
// Owner: tests.
// Thread: the test's.
// Invariant: sample p of the plan has p % 3 + 2 tokens, and every number in it is a function of (p, index).
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "consumer/run_card.h"
#include "consumer/test_registry.h"
#include "store/local_store.h"

namespace levada::consumer {

inline constexpr std::int64_t kHidden = 4;

inline std::int64_t tokens_of(std::int64_t p) { return p % 3 + 2; }

template <class T>
std::vector<T> numbers(std::int64_t p, std::int64_t count, std::int64_t offset) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(p * 100 + i + offset));
  return out;
}

template <class T>
std::vector<std::byte> bytes_of_numbers(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<std::int64_t> input_ids(std::int64_t p) { return numbers<std::int64_t>(p, tokens_of(p), 1); }

// Layers 1 and 2 of width kHidden: 2 * 4 * 2 + 16 bytes a token.
inline RunCard small_card(std::int64_t total) {
  RunCard card{"run",  "store", "contract",   "plan", "http://127.0.0.1:1", total, total,
               {1, 2}, kHidden, DType::kBF16, {}};
  for (std::int64_t p = 0; p < total; ++p) {
    card.input_hashes.push_back(hash64(bytes_of_numbers(input_ids(p))));
  }
  return card;
}

inline fanout::RunConfig small_run(const RunCard& card, std::vector<fanout::ConsumerSpec> consumers,
                                   std::int64_t max_live_refs) {
  fanout::RunConfig config;
  config.run_id = card.run_id;
  config.store_id = card.store_id;
  config.contract_digest = card.contract_digest;
  config.source_digest = card.source_digest;
  for (std::int64_t p = 0; p < card.total_samples; ++p) {
    config.sources.push_back({"run:p" + std::to_string(p), tokens_of(p)});
  }
  config.consumers = std::move(consumers);
  config.bytes_per_token = 2 * kHidden * 2 + 16;
  config.max_live_refs = max_live_refs;
  config.max_live_bytes = max_live_refs * 4 * config.bytes_per_token;
  config.feature_names = {"hidden_states", "input_ids", "loss_mask"};
  return config;
}

inline fanout::RegisterRequest registration(const RunCard& card, const fanout::ConsumerSpec& spec,
                                            const std::string& nonce = "nonce") {
  return {card.run_id,    spec.consumer_id,    card.contract_digest, card.source_digest, "recipe", spec.lookbehind,
          spec.lookahead, spec.prefetch_depth, spec.max_outstanding, spec.quantum,       nonce,    false};
}

// Puts the objects of position p into the arena and returns the ref that names them.
inline core::SampleRef put_sample(store::Arena& arena, const RunCard& card, std::int64_t p, std::int64_t generation,
                                  const std::string& url = "local") {
  core::SampleRef ref;
  ref.store_id = card.store_id;
  ref.sample_id = "run:p" + std::to_string(p);
  ref.generation = static_cast<std::uint32_t>(generation);
  ref.store_url = url;
  ref.incarnation = arena.incarnation();
  ref.num_tokens = static_cast<std::int32_t>(tokens_of(p));
  ref.aux_layer_ids = card.aux_layer_ids;
  const std::int64_t length = tokens_of(p), width = 2 * kHidden;
  const auto put = [&](const char* name, DType dtype, std::vector<std::int64_t> shape, std::vector<std::byte> bytes) {
    const std::string key = core::object_key(ref.store_id, ref.sample_id, ref.generation, name);
    const Status status = arena.put_from(key, bytes);
    LEVADA_CHECK(status.ok(), status.to_string().c_str());
    ref.tensors.push_back({name, dtype, std::move(shape), hash64(bytes)});
  };
  put("hidden_states", DType::kBF16, {1, length, width},
      bytes_of_numbers(numbers<std::uint16_t>(p, length * width, 7)));
  put("input_ids", DType::kI64, {1, length}, bytes_of_numbers(input_ids(p)));
  put("loss_mask", DType::kI64, {1, length},
      bytes_of_numbers(std::vector<std::int64_t>(static_cast<std::size_t>(length), 1)));
  return ref;
}

// One claim, captured and committed, as a producer would; returns how many samples that were.
inline std::int64_t capture_some(TestRegistry& registry, store::Arena& arena, const RunCard& card,
                                 std::int64_t claim_id, std::int64_t most = 4) {
  const auto claim = registry.call(fanout::ClaimRequest{"w", "server", claim_id, most, 0});
  LEVADA_CHECK(claim.ok(), "the claim is answered");
  for (const fanout::CaptureOrder& order : claim->requests) {
    const auto ref = put_sample(arena, card, order.source_index, order.generation);
    const auto shared = std::make_shared<const core::SampleRef>(ref);
    const auto bytes = static_cast<std::int64_t>(ref.bytes());
    const fanout::MarkCommittingRequest mark{order.source_index, order.generation, order.nonce, shared, bytes};
    LEVADA_CHECK(registry.call(mark).ok(), "the ref is taken");
    const fanout::CompleteCaptureRequest complete{order.source_index, order.generation, order.nonce};
    LEVADA_CHECK(registry.call(complete).ok(), "the capture is complete");
  }
  return static_cast<std::int64_t>(claim->requests.size());
}

// Everything the registry wants removed, removed.
inline void remove_all(TestRegistry& registry, store::Arena& arena, const RunCard& card) {
  const auto reply = registry.call(fanout::RemovalsRequest{64, 0});
  LEVADA_CHECK(reply.ok(), "removals are answered");
  for (const fanout::Removal& removal : reply->removals) {
    fanout::FinishEvictionRequest finished{removal.source_index, removal.generation, {}};
    for (const std::string& name : removal.names) {
      const std::string key = core::object_key(card.store_id, removal.source_sample_id,
                                               static_cast<std::uint32_t>(removal.generation), name);
      if (arena.remove(key) == store::RemoveOutcome::kStillRead) finished.failed_keys.push_back(key);
    }
    LEVADA_CHECK(registry.call(finished).ok(), "the removal is told");
  }
}

}  // namespace levada::consumer
