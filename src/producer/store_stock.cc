#include "producer/store_stock.h"

namespace levada::producer {

Result<store::ObjectStore*> StoreStock::at(const std::string& url) {
  auto& held = open_stores_[url];
  if (held == nullptr) {
    LEVADA_ASSIGN_OR_RETURN(held, open_(url));
  }
  return held.get();
}

Result<store::RemoveOutcome> StoreStock::remove(const std::string& url, const std::string& key) {
  LEVADA_ASSIGN_OR_RETURN(store::ObjectStore * store, at(url));
  auto outcome = store->remove(key);
  if (!outcome.ok()) open_stores_.erase(url);
  return outcome;
}

Result<store::RemovedCount> StoreStock::remove_prefix(const std::string& url, const std::string& prefix) {
  LEVADA_ASSIGN_OR_RETURN(store::ObjectStore * store, at(url));
  auto count = store->remove_prefix(prefix);
  if (!count.ok()) open_stores_.erase(url);
  return count;
}

}  // namespace levada::producer
