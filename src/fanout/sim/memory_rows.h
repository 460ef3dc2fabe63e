// What: MemoryRows, a database of the registry's rows in memory: what was committed, and nothing else.
// Owner: simulators and tests.
// Thread: one at a time.
// Invariant: rows() after commit(changes) is what any Storage would load.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "fanout/rows.h"

namespace levada::fanout {

class MemoryRows {
 public:
  Rows rows() const {
    Rows rows;
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

  void commit(const Changes& changes) {
    const Rows& rows = changes.upserts;
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
  }

 private:
  std::optional<RunRow> run_;
  std::map<std::int64_t, SourceRow> sources_;
  std::map<std::string, ConsumerRow> consumers_;
  std::map<std::int64_t, EntryRow> entries_;
  std::map<std::string, LeaseRow> leases_;
  std::map<GarbageKey, GarbageRow> garbage_;
  std::map<std::pair<std::string, std::int64_t>, CheckpointRow> checkpoints_;
  std::map<std::string, CounterRow> counters_;
};

}  // namespace levada::fanout
