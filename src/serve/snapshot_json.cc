#include "serve/snapshot_json.h"

namespace levada::serve {

nlohmann::ordered_json snapshot_json(const sched::Snapshot& snapshot) {
  return {{"running", snapshot.running},
          {"waiting", snapshot.waiting},
          {"prefilling", snapshot.prefilling},
          {"total_pages", snapshot.total_pages},
          {"free_pages", snapshot.free_pages},
          {"leased_pages", snapshot.leased_pages},
          {"cached_pages", snapshot.cached_pages},
          {"evictable_pages", snapshot.evictable_pages},
          {"page_size_tokens", snapshot.page_size_tokens},
          {"steps", snapshot.steps},
          {"retractions", snapshot.retractions},
          {"aborts", snapshot.aborts},
          {"evicted_tokens", snapshot.evicted_tokens}};
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace levada::serve
