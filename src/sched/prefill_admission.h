// What: PrefillAdmission, how much prefill one step takes on: the pure policy (M1 in docs/spec-map.md).
// Owner: made anew for each step by the Brain.
// Thread: the scheduler's; it holds numbers only.
// Invariant: what is granted fits the pages offered; a granted part of a prompt ends on a page border; after a part was
// granted nothing else is, so at most one request is unfinished. Decode rows do not count against the chunk budget: a
// step has at most max_running_requests of them.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "core/kv_layout.h"

namespace levada::sched {

enum class AdmissionReason : std::uint8_t {
  kContinue,  // ask for the next candidate
  kNoToken,   // the pool has no room now
  kOther,     // a budget of this step (requests, input tokens, chunk) is used up
};

struct AdmissionLimits {
  std::int32_t request_slots = 0;            // requests that may still start
  std::int64_t reserved_pages = 0;           // expected future need of the requests already running
  std::int64_t input_tokens = 0;             // budget of the step without chunking
  std::optional<std::int64_t> chunk_tokens;  // budget of the step; unset: whole prompts
};

struct AdmissionCandidate {
  std::int32_t prefix_tokens = 0;   // already cached, whole pages, locked
  std::int32_t input_tokens = 0;    // prefix included
  std::int32_t max_new_tokens = 0;  // still to come
};

struct AdmissionVerdict {
  std::int32_t extend_tokens = 0;  // 0: not admitted, for `reason`
  AdmissionReason reason = AdmissionReason::kContinue;
};

class PrefillAdmission {
 public:
  // Output beyond this is not reserved for: most answers end earlier (M1).
  static constexpr std::int32_t kMaxNewTokensEstimate = 4096;

  // The layout must outlive this object; it is asked for every rounding to pages.
  PrefillAdmission(const core::KvLayout& layout, const AdmissionLimits& limits);

  // Tokens of the unfinished request's next chunk. It was admitted before: only the chunk budget applies.
  std::int32_t continue_chunk(std::int32_t prefix_tokens, std::int32_t input_tokens);
  // `available_pages`: free and evictable now, the candidate's prefix being locked. An exact fit is admitted.
  AdmissionVerdict try_add(const AdmissionCandidate& candidate, std::int64_t available_pages);

 private:
  std::int64_t charge_tokens(std::int64_t extend_tokens) const;
  std::int64_t trim(std::int32_t prefix_tokens, std::int64_t extend_tokens) const;
  void charge(std::int64_t extend_tokens);

  const core::KvLayout* layout_;
  AdmissionLimits left_;
  bool batch_empty_ = true;
};

// Pages a request may yet take: those of `final_tokens` beyond the ones it holds.
std::int64_t pages_to_come(const core::KvLayout& layout, std::int64_t final_tokens, std::int64_t pages_held);

// Tokens the whole pool holds, or the context: prompt plus output never exceed it (law 5).
std::int32_t max_total_tokens(const core::KvLayout& layout, std::int32_t context_length_tokens,
                              std::int32_t total_pages);

// Whether a prompt can ever run: it and one token of output must fit the context and an empty pool. Output beyond
// either ends with "length". kPayloadTooLarge names both numbers.
Status check_fits(const core::KvLayout& layout, std::int32_t context_length_tokens, std::int32_t total_pages,
                  std::int32_t prompt_tokens);

}  // namespace levada::sched
