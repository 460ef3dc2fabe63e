// What: MemoryStorage, a Storage for tests: rows in memory, commits that can be made to fail, and counts of what was done.
// Owner: the test; the Registry holds a MemoryStorageHandle to it, so that the rows outlive a "crashed" registry.
// Thread: the Registry's; the test's while the registry is stopped, and the atomics always.
// Invariant: as Storage, but for durability.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "registry/storage.h"

namespace levada::registry {

class MemoryStorage {
 public:
  Result<fanout::Rows> load() {
    if (fail_loads > 0) {
      --fail_loads;
      return unavailable("the test's database is away");
    }
    fanout::Rows rows;
    rows.run = run_;
    for (const auto& [key, row] : sources_) rows.sources.push_back(row);
    for (const auto& [key, row] : consumers_) rows.consumers.push_back(row);
    for (const auto& [key, row] : entries_) rows.entries.push_back(row);
    for (const auto& [key, row] : leases_) rows.leases.push_back(row);
    for (const auto& [key, row] : garbage_) rows.garbage.push_back(row);
    for (const auto& [key, row] : checkpoints_) rows.checkpoints.push_back(row);
    for (const auto& [key, row] : counters_) rows.counters.push_back(row);
    return rows;
  }

  Status commit(const fanout::Changes& changes) {
    if (fail_commits > 0) {
      --fail_commits;
      return unavailable("the test's disk is full");
    }
    const fanout::Rows& rows = changes.upserts;
    if (rows.run) run_ = rows.run;
    for (const auto& row : rows.sources) sources_[row.source_index] = row;
    for (const auto& row : rows.consumers) consumers_[row.consumer_id] = row;
    for (const auto& row : rows.entries) entries_[row.source_index] = row;
    for (const auto& row : rows.leases) leases_[row.token] = row;
    for (const auto& row : rows.garbage) garbage_[{row.source_index, row.generation}] = row;
    for (const auto& row : rows.checkpoints) checkpoints_[{row.consumer_id, row.step}] = row;
    for (const auto& row : rows.counters) counters_[row.name] = row;
    for (const auto& token : changes.erased_leases) leases_.erase(token);
    for (const auto& key : changes.erased_garbage) garbage_.erase(key);
    ++commits;
    return {};
  }

  std::atomic<int> commits{0};
  std::atomic<int> fail_commits{0};
  std::atomic<int> fail_loads{0};

 private:
  std::optional<fanout::RunRow> run_;
  std::map<std::int64_t, fanout::SourceRow> sources_;
  std::map<std::string, fanout::ConsumerRow> consumers_;
  std::map<std::int64_t, fanout::EntryRow> entries_;
  std::map<std::string, fanout::LeaseRow> leases_;
  std::map<fanout::GarbageKey, fanout::GarbageRow> garbage_;
  std::map<std::pair<std::string, std::int64_t>, fanout::CheckpointRow> checkpoints_;
  std::map<std::string, fanout::CounterRow> counters_;
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
