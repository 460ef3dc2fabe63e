// What: RemovalWorker, the one place from which captured objects are deleted: what the registry hands out is removed from
// every store it may lie in.
// Owner: the Producer.
// Thread: its own; step() from one at a time.
// Invariant: a generation is reported gone only when each of its keys is gone from each server it was sent to; absent
// counts as gone, still read does not. Nothing is probed before its removal. A store that went down for good took its
// objects with it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/pause.h"
#include "fanout/registry_api.h"
#include "producer/server_watch.h"
#include "producer/store_stock.h"

namespace levada::producer {

class RemovalWorker {
 public:
  struct Options {
    std::string store_id;
    std::int64_t batch = 64;
    std::int64_t wait_ms = 500;
  };
  enum class Step : std::uint8_t { kWorked, kIdle, kFailed, kDrained };

  // `watches`: the run's servers, by which a removal's server names become store URLs.
  RemovalWorker(Options options, fanout::RegistryApi& registry, const std::vector<ServerWatch*>& watches,
                OpenStore open_store, Pause& pause)
      : options_(std::move(options)),
        registry_(registry),
        watches_(watches),
        stores_(std::move(open_store)),
        pause_(pause) {}

  // A Status is the end of the run, or kAborted: the producer was stopped.
  Result<Step> step();
  // After the drain: removes what is stored of the run although the registry does not know of it, e.g. a write that came
  // later than every limit; returns how many objects that were.
  Result<std::int64_t> sweep(const std::string& store_url, const std::string& run_id);

 private:
  Status remove(const fanout::Removal& removal);
  std::set<std::string> stores_of(const fanout::Removal& removal, std::vector<std::string>& unknown) const;

  const Options options_;
  fanout::RegistryApi& registry_;
  const std::vector<ServerWatch*>& watches_;
  StoreStock stores_;
  Pause& pause_;
};

}  // namespace levada::producer
