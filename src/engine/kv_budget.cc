#include "engine/kv_budget.h"

#include <algorithm>
#include <string>

namespace levada::engine {
namespace {

std::string mib(std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Result<std::int32_t> choose_kv_pages(const core::KvLayout& layout, const KvBudget& budget) {
  const std::int64_t page_bytes = layout.bytes_per_page();
  std::int64_t tokens = 0;
  if (budget.max_total_tokens) {
    tokens = *budget.max_total_tokens;
  } else {
    const auto share = static_cast<std::int64_t>(static_cast<double>(budget.free_bytes) * budget.mem_fraction_static);
    tokens = std::min(share / page_bytes * layout.page_size_tokens(),
                      kDefaultContexts * std::int64_t{budget.context_length_tokens});
  }
  // Whole pages that fit into the asked number of tokens; asking for less than a page is asking for nothing.
  const std::int64_t pages = tokens / layout.page_size_tokens();
  if (pages < 1 || pages > INT32_MAX) {
    return resource_exhausted("a KV pool of " + std::to_string(tokens) + " tokens holds no whole page of " +
                              std::to_string(layout.page_size_tokens()) + " tokens (" + mib(page_bytes) +
                              " each; free memory " + mib(budget.free_bytes) +
                              "): raise --max-total-tokens or free memory");
  }
  if (pages * page_bytes > budget.free_bytes) {
    return resource_exhausted("a KV pool of " + std::to_string(pages * layout.page_size_tokens()) + " tokens needs " +
                              mib(pages * page_bytes) + ", but only " + mib(budget.free_bytes) +
                              " of memory are free: lower --max-total-tokens");
  }
  return static_cast<std::int32_t>(pages);
}

}  // namespace levada::engine
