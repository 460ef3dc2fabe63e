// What: MemoryStorage, a Storage for tests: rows in memory, commits that can be made to fail, and counts of what was done.
// Owner: the test; the Registry holds a MemoryStorageHandle to it, so that the rows outlive a "crashed" registry.
// Thread: the Registry's; the test's while the registry is stopped, and the atomics always.
// Invariant: as Storage, but for durability.
#pragma once

#include <atomic>

#include "fanout/sim/memory_rows.h"
#include "registry/storage.h"

namespace levada::registry {

class MemoryStorage {
 public:
  Result<fanout::Rows> load() {
    if (fail_loads > 0) {
      --fail_loads;
      return unavailable("the test's database is away");
    }
    return rows_.rows();
  }

  Status commit(const fanout::Changes& changes) {
    if (fail_commits > 0) {
      --fail_commits;
      return unavailable("the test's disk is full");
    }
    rows_.commit(changes);
    ++commits;
    return {};
  }

  std::atomic<int> commits{0};
  std::atomic<int> fail_commits{0};
  std::atomic<int> fail_loads{0};

 private:
  fanout::MemoryRows rows_;
};

class MemoryStorageHandle final : public Storage {
 public:
  explicit MemoryStorageHandle(MemoryStorage& storage) : storage_(storage) {}
  Result<fanout::Rows> load() override { return storage_.load(); }
  Status commit(const fanout::Changes& changes) override { return storage_.commit(changes); }

 private:
  MemoryStorage& storage_;
};

}  // namespace levada::registry
