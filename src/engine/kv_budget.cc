#include "engine/kv_budget.h"

#include <algorithm>
#include <string>

namespace levada::engine {
namespace {

std::string mib(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Result<std::int32_t> choose_kv_pages(const core::KvLayout& layout, const KvBudget& budget) {
  const std::int64_t available = std::max<std::int64_t>(0, budget.free_bytes - budget.reserve_bytes);
  const std::int64_t page_bytes = layout.bytes_per_page(), page_tokens = layout.page_size_tokens();
  std::int64_t pages = 0;
  if (budget.max_total_tokens) {
    pages = *budget.max_total_tokens / page_tokens;  // whole pages that fit into the asked number of tokens
    if (pages < 1) {
      return resource_exhausted("a KV pool of " + std::to_string(*budget.max_total_tokens) +
                                " tokens holds no whole page of " + std::to_string(page_tokens) +
                                ": raise --max-total-tokens or lower --page-size");
    }
  } else {
    const auto share = static_cast<std::int64_t>(static_cast<double>(available) * budget.mem_fraction_static);
    const std::int64_t context_pages = (budget.context_length_tokens + page_tokens - 1) / page_tokens;
    pages = std::min<std::int64_t>(share / page_bytes, INT32_MAX);
    if (budget.max_contexts) pages = std::min(pages, *budget.max_contexts * context_pages);
    if (pages < 1) {
      return resource_exhausted("the KV pool's share of " + mib(available) + " of free memory (" + mib(share) +
                                ") holds no page of " + std::to_string(page_bytes) +
                                " bytes: free memory, raise --mem-fraction-static or lower --page-size");
    }
  }
  if (pages > INT32_MAX || pages * page_bytes > available) {
    return resource_exhausted("a KV pool of " + std::to_string(pages * page_tokens) + " tokens needs " +
                              mib(pages * page_bytes) + ", but only " + mib(available) +
                              " of memory are free: lower --max-total-tokens");
  }
  return static_cast<std::int32_t>(pages);
}

}  // namespace levada::engine
