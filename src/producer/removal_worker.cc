#include "producer/removal_worker.h"

#include <algorithm>

#include "core/sample_ref.h"
#include "producer/registry_calls.h"

namespace levada::producer {

Result<RemovalWorker::Step> RemovalWorker::step() {
  const auto reply = registry_.call(fanout::RemovalsRequest{options_.batch, options_.wait_ms});
  if (!reply.ok()) {
    if (fanout::is_retryable(reply.error().code)) return Step::kFailed;
    return call_failed("claim_removals", reply.error(), pause_);
  }
  for (const fanout::Removal& removal : reply->removals) LEVADA_RETURN_IF_ERROR(remove(removal));
  if (!reply->removals.empty()) return Step::kWorked;
  return reply->drained ? Step::kDrained : Step::kIdle;
}

Status RemovalWorker::remove(const fanout::Removal& removal) {
  fanout::FinishEvictionRequest finished{removal.source_index, removal.generation, {}};
  for (const std::string& url : stores_of(removal, finished.failed_keys)) {
    for (const std::string& name : removal.names) {
      const std::string key = core::object_key(options_.store_id, removal.source_sample_id,
                                               static_cast<std::uint32_t>(removal.generation), name);
      const auto outcome = stores_.remove(url, key);
      if (outcome.ok() && *outcome != store::RemoveOutcome::kStillRead) continue;
      finished.failed_keys.push_back(key + (outcome.ok() ? " (still read)" : ": " + outcome.status().message()));
    }
  }
  const auto reply = call_until_heard(registry_, finished, pause_);
  return reply.ok() ? Status() : call_failed("finish_evictions", reply.error(), pause_);
}

// The store its ref names, and that of each server it was ever sent to: two arenas may hold the same key. A server that is
// down for good has no memory; one that has not yet said where its store is must be waited for. A store that none of its
// servers names any more belonged to an earlier life of one of them.
std::set<std::string> RemovalWorker::stores_of(const fanout::Removal& removal,
                                               std::vector<std::string>& unknown) const {
  std::set<std::string> urls;
  std::size_t known = 0;
  bool is_refs_store_gone = false;
  for (const ServerWatch* watch : watches_) {
    const std::string url = watch->store_url();
    const auto named = std::find(removal.servers.begin(), removal.servers.end(), watch->url());
    if (watch->is_gone()) is_refs_store_gone = is_refs_store_gone || url == removal.store_url;
    if (named == removal.servers.end()) continue;
    known += 1;
    if (watch->is_gone()) continue;
    if (url.empty()) {
      unknown.push_back(removal.source_sample_id + ": " + watch->url() + " does not answer");
    } else {
      urls.insert(url);
    }
  }
  const bool others_may_hold_it = known < removal.servers.size() || removal.servers.empty();
  if (!removal.store_url.empty() && !is_refs_store_gone && others_may_hold_it) urls.insert(removal.store_url);
  return urls;
}

Result<std::int64_t> RemovalWorker::sweep(const std::string& store_url, const std::string& run_id) {
  // The common beginning of all keys of the run, encoded as keys are.
  const std::string key = core::object_key(options_.store_id, run_id + ":", 1, "x");
  LEVADA_ASSIGN_OR_RETURN(const store::RemovedCount count,
                          stores_.remove_prefix(store_url, key.substr(0, key.rfind("/g1/"))));
  return static_cast<std::int64_t>(count.freed + count.still_read);
}

}  // namespace levada::producer
