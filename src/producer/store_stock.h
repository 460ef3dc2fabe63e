// What: StoreStock, the producer's connections to the stores of its capture servers, for removals.
// Owner: the RemovalWorker.
// Thread: its owner's.
// Invariant: a connection that failed is not used again; the next removal opens another.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "store/object_store.h"

namespace levada::producer {

using OpenStore = std::function<Result<std::unique_ptr<store::ObjectStore>>(const std::string& url)>;

class StoreStock {
 public:
  explicit StoreStock(OpenStore open) : open_(std::move(open)) {}

  // Without asking first whether it is there. kFreed and kAbsent both mean that its memory is free; kUnavailable: ask again
  // later.
  Result<store::RemoveOutcome> remove(const std::string& url, const std::string& key);
  Result<store::RemovedCount> remove_prefix(const std::string& url, const std::string& prefix);

 private:
  Result<store::ObjectStore*> at(const std::string& url);

  OpenStore open_;
  std::map<std::string, std::unique_ptr<store::ObjectStore>> open_stores_;
};

}  // namespace levada::producer
