#include "sched/prefill_admission.h"

#include <algorithm>
#include <limits>
#include <string>

namespace levada::sched {

PrefillAdmission::PrefillAdmission(const core::KvLayout& layout, const AdmissionLimits& limits)
    : layout_(&layout), left_(limits) {
  // A chunk below one page could never end on a page border.
  if (left_.chunk_tokens) left_.chunk_tokens = std::max<std::int64_t>(*left_.chunk_tokens, layout.page_size_tokens());
}

std::int32_t PrefillAdmission::continue_chunk(std::int32_t prefix_tokens, std::int32_t input_tokens) {
  const std::int64_t extend = trim(prefix_tokens, input_tokens - prefix_tokens);
  charge(extend);
  return static_cast<std::int32_t>(extend);
}

AdmissionVerdict PrefillAdmission::try_add(const AdmissionCandidate& candidate, std::int64_t available_pages) {
  if (left_.request_slots <= 0) return {0, AdmissionReason::kOther};

  const std::int64_t expected_new = std::min(candidate.max_new_tokens, kMaxNewTokensEstimate);
  const std::int64_t prefix_pages = layout_->pages_for(candidate.prefix_tokens);
  const std::int64_t need_pages = pages_to_come(*layout_, candidate.input_tokens + expected_new, prefix_pages);
  const std::int64_t spare_pages = available_pages - left_.reserved_pages - need_pages;
  if (spare_pages < 0) return {0, AdmissionReason::kNoToken};

  const std::int64_t whole = candidate.input_tokens - candidate.prefix_tokens;
  if (!left_.chunk_tokens && !batch_empty_ && charge_tokens(whole) > left_.input_tokens)
    return {0, AdmissionReason::kOther};
  const std::int64_t extend = trim(candidate.prefix_tokens, whole);
  if (extend <= 0) return {0, AdmissionReason::kOther};

  // The caller allocates the extension's pages at once; only the rest stays a reservation.
  left_.reserved_pages += need_pages - pages_to_come(*layout_, candidate.prefix_tokens + extend, prefix_pages);
  --left_.request_slots;
  charge(extend);

  AdmissionReason next = AdmissionReason::kContinue;
  if (left_.input_tokens <= 0 || (left_.chunk_tokens && *left_.chunk_tokens <= 0)) next = AdmissionReason::kOther;
  if (spare_pages == 0) next = AdmissionReason::kNoToken;
  return {static_cast<std::int32_t>(extend), next};
}

std::int64_t PrefillAdmission::charge_tokens(std::int64_t extend_tokens) const {
  return static_cast<std::int64_t>(layout_->pages_for(extend_tokens)) * layout_->page_size_tokens();
}

std::int64_t PrefillAdmission::trim(std::int32_t prefix_tokens, std::int64_t extend_tokens) const {
  if (!left_.chunk_tokens || charge_tokens(extend_tokens) <= *left_.chunk_tokens) return extend_tokens;
  const std::int64_t page = layout_->page_size_tokens();
  return std::max<std::int64_t>((prefix_tokens + *left_.chunk_tokens) / page * page - prefix_tokens, 0);
}

void PrefillAdmission::charge(std::int64_t extend_tokens) {
  const std::int64_t charged = charge_tokens(extend_tokens);
  left_.input_tokens -= charged;
  if (left_.chunk_tokens) *left_.chunk_tokens -= charged;
  batch_empty_ = false;
}

std::int64_t pages_to_come(const core::KvLayout& layout, std::int64_t final_tokens, std::int64_t pages_held) {
  return std::max<std::int64_t>(layout.pages_for(final_tokens) - pages_held, 0);
}

std::int32_t max_total_tokens(const core::KvLayout& layout, std::int32_t context_length_tokens,
                              std::int32_t total_pages) {
  const std::int64_t pool = static_cast<std::int64_t>(total_pages) * layout.page_size_tokens();
  return static_cast<std::int32_t>(std::min<std::int64_t>(context_length_tokens, pool));
}

Status check_fits(const core::KvLayout& layout, std::int32_t context_length_tokens, std::int32_t total_pages,
                  std::int32_t prompt_tokens) {
  const std::int32_t limit = max_total_tokens(layout, context_length_tokens, total_pages);
  if (prompt_tokens < limit) return {};
  const std::string bound =
      limit == context_length_tokens ? "the model's context length" : "the KV cache of this server";
  return payload_too_large("The input (" + std::to_string(prompt_tokens) + " tokens) is longer than " + bound + " (" +
                           std::to_string(limit) + " tokens).");
}

}  // namespace levada::sched
