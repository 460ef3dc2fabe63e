#include "engine/kv_budget.h"

#include <algorithm>
#include <string>

namespace levada::engine {
namespace {

std::string mib(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Result<std::int32_t> choose_kv_pages(const core::KvLayout& layout, const KvBudget& budget) {
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
    const auto share = static_cast<std::int64_t>(static_cast<double>(budget.free_bytes) * budget.mem_fraction_static);
    const std::int64_t context_pages = (budget.context_length_tokens + page_tokens - 1) / page_tokens;
    pages = std::min(share / page_bytes, kDefaultContexts * context_pages);
    if (pages < 1) {
      return resource_exhausted("the KV pool's share of " + mib(budget.free_bytes) + " of free memory (" + mib(share) +
                                ") holds no page of " + std::to_string(page_bytes) +
                                " bytes: free memory, raise --mem-fraction-static or lower --page-size");
    }
  }
  if (pages > INT32_MAX || pages * page_bytes > budget.free_bytes) {
    return resource_exhausted("a KV pool of " + std::to_string(pages * page_tokens) + " tokens needs " +
                              mib(pages * page_bytes) + ", but only " + mib(budget.free_bytes) +
                              " of memory are free: lower --max-total-tokens");
  }
  return static_cast<std::int32_t>(pages);
}

}  // namespace levada::engine
