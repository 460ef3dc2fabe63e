#include "serve/snapshot_json.h"

#include <ctime>

namespace levada::serve {

nlohmann::ordered_json snapshot_json(const sched::Snapshot& snapshot) {
  nlohmann::ordered_json json = {{"running", snapshot.running},
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
  const sched::SpeculationTotals& given = snapshot.speculation;
  if (given.steps > 0) {
    json["avg_spec_accept_length"] = 1 + static_cast<double>(given.accepted) / static_cast<double>(given.steps);
  }
  return json;
}

namespace {

std::string iso_time(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
  return text;
}

}  // namespace

nlohmann::ordered_json loads_json(const sched::Snapshot& snapshot, const std::string& version, std::int64_t unix_s) {
  const auto tokens = [&](std::int32_t pages) { return std::int64_t{pages} * snapshot.page_size_tokens; };
  const std::int64_t total = tokens(snapshot.total_pages);
  const std::int64_t used = total - tokens(snapshot.free_pages) - tokens(snapshot.evictable_pages);
  const double usage = total > 0 ? static_cast<double>(used) / static_cast<double>(total) : 0;
  const std::int32_t running = snapshot.running + snapshot.prefilling, waiting = snapshot.waiting;
  return {{"timestamp", iso_time(unix_s)},
          {"version", version},
          {"dp_rank_count", 1},
          {"loads",
           {{{"dp_rank", 0},
             {"num_running_reqs", running},
             {"num_waiting_reqs", waiting},
             {"num_total_reqs", running + waiting},
             {"num_used_tokens", used},
             {"max_total_num_tokens", total},
             {"token_usage", usage},
             {"gen_throughput", snapshot.generation_throughput},
             {"cache_hit_rate", snapshot.cache_hit_rate},
             {"utilization", usage},
             {"max_running_requests", snapshot.max_running_requests}}}},
          {"aggregate",
           {{"total_running_reqs", running},
            {"total_waiting_reqs", waiting},
            {"total_reqs", running + waiting},
            {"total_used_tokens", used},
            {"total_tokens", total},
            {"avg_token_usage", usage},
            {"avg_throughput", snapshot.generation_throughput},
            {"avg_utilization", usage}}}};
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace levada::serve
