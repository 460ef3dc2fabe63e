// What: the rows of the registry's tables, as the Machine reads them once and emits them when they changed.
// Owner: values.
// Thread: any.
// Invariant: a table's columns are its row's `fields()`, in that order; `v.key` marks the primary key. Tables are created,
// written and read from these lists alone, for SQLite and PostgreSQL alike.
// Format: docs/formats/registry.md. No row holds a time: after a restart every time limit counts from the restart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fanout/consumer_messages.h"
#include "fanout/states.h"

namespace levada::fanout {

struct RunRow {
  static constexpr const char* kTable = "run_config";
  std::int64_t schema_version = 1;
  std::string run_id;
  std::string store_id;
  std::string contract_digest;
  std::string source_digest;
  std::int64_t total_samples = 0;
  std::string expected_consumers;
  std::int64_t max_live_refs = 0;
  std::int64_t max_live_bytes = 0;
  std::int64_t capture_reservation_bytes = 0;
  RunStatus status = RunStatus::kActive;
  std::string fail_reason;
  std::int64_t registry_epoch = 0;  // starts of the registry, counted
  template <class V>
  static void fields(V&& v) {
    v.key("schema_version", &RunRow::schema_version);
    v("run_id", &RunRow::run_id);
    v("store_id", &RunRow::store_id);
    v("contract_digest", &RunRow::contract_digest);
    v("source_digest", &RunRow::source_digest);
    v("total_samples", &RunRow::total_samples);
    v("expected_consumers", &RunRow::expected_consumers);
    v("max_live_refs", &RunRow::max_live_refs);
    v("max_live_bytes", &RunRow::max_live_bytes);
    v("capture_reservation_bytes", &RunRow::capture_reservation_bytes);
    v("status", &RunRow::status);
    v("fail_reason", &RunRow::fail_reason);
    v("registry_epoch", &RunRow::registry_epoch);
  }
  bool operator==(const RunRow&) const = default;
};

struct SourceRow {
  static constexpr const char* kTable = "sources";
  std::int64_t source_index = 0;
  std::string source_sample_id;
  std::int64_t ntokens = 0;
  template <class V>
  static void fields(V&& v) {
    v.key("source_index", &SourceRow::source_index);
    v("source_sample_id", &SourceRow::source_sample_id);
    v("ntokens", &SourceRow::ntokens);
  }
  bool operator==(const SourceRow&) const = default;
};

struct ConsumerRow {
  static constexpr const char* kTable = "consumers";
  std::string consumer_id;
  ConsumerState state = ConsumerState::kExpected;
  std::int64_t cursor = 0;  // == step * quantum
  std::int64_t step = 0;
  std::int64_t quantum = 1;
  std::string recipe_hash;
  std::string client_nonce;
  std::string session_id;
  std::int64_t session_epoch = 0;
  std::int64_t session_registry_epoch = 0;
  std::int64_t last_op = 0;
  std::int64_t last_op_hash = 0;
  std::string last_op_reply;
  std::int64_t unfounded_reports = 0;
  std::string failure;
  template <class V>
  static void fields(V&& v) {
    v.key("consumer_id", &ConsumerRow::consumer_id);
    v("state", &ConsumerRow::state);
    v("cursor_position", &ConsumerRow::cursor);
    v("step", &ConsumerRow::step);
    v("quantum", &ConsumerRow::quantum);
    v("recipe_hash", &ConsumerRow::recipe_hash);
    v("client_nonce", &ConsumerRow::client_nonce);
    v("session_id", &ConsumerRow::session_id);
    v("session_epoch", &ConsumerRow::session_epoch);
    v("session_registry_epoch", &ConsumerRow::session_registry_epoch);
    v("last_op", &ConsumerRow::last_op);
    v("last_op_hash", &ConsumerRow::last_op_hash);
    v("last_op_reply", &ConsumerRow::last_op_reply);
    v("unfounded_reports", &ConsumerRow::unfounded_reports);
    v("failure", &ConsumerRow::failure);
  }
  bool operator==(const ConsumerRow&) const = default;
};

struct EntryRow {
  static constexpr const char* kTable = "entries";
  std::int64_t source_index = 0;
  EntryState state = EntryState::kAbsent;
  std::int64_t generation = 0;        // never decreases
  std::int64_t materializations = 0;  // arrivals in ready
  std::int64_t attempt = 0;           // of this generation
  std::int64_t retry_count = 0;       // failures since it was last ready
  std::int64_t lost_reports = 0;      // since somebody last read it well
  std::int64_t reserved_bytes = 0;    // what it counts for in live_bytes
  bool condemned = false;             // reported lost: never granted again, evicted once unleased
  bool prefetch_suppressed = false;   // shed under pressure: not prefetched until demanded or met by another window
  std::string nonce;                  // of the last attempt
  std::string worker;
  std::int64_t claim_id = 0;
  std::vector<std::string> servers;  // every capture server this generation was sent to
  RefPtr ref;
  std::string last_error;
  template <class V>
  static void fields(V&& v) {
    v.key("source_index", &EntryRow::source_index);
    v("state", &EntryRow::state);
    v("generation", &EntryRow::generation);
    v("materializations", &EntryRow::materializations);
    v("attempt", &EntryRow::attempt);
    v("retry_count", &EntryRow::retry_count);
    v("lost_reports", &EntryRow::lost_reports);
    v("reserved_bytes", &EntryRow::reserved_bytes);
    v("condemned", &EntryRow::condemned);
    v("prefetch_suppressed", &EntryRow::prefetch_suppressed);
    v("nonce", &EntryRow::nonce);
    v("worker", &EntryRow::worker);
    v("claim_id", &EntryRow::claim_id);
    v("servers_json", &EntryRow::servers);
    v("ref_json", &EntryRow::ref);
    v("last_error", &EntryRow::last_error);
  }
};

struct LeaseRow {
  static constexpr const char* kTable = "read_leases";
  std::string token;
  std::string consumer_id;
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  std::int64_t session_epoch = 0;
  std::int64_t registry_epoch = 0;
  template <class V>
  static void fields(V&& v) {
    v.key("token", &LeaseRow::token);
    v("consumer_id", &LeaseRow::consumer_id);
    v("source_index", &LeaseRow::source_index);
    v("generation", &LeaseRow::generation);
    v("session_epoch", &LeaseRow::session_epoch);
    v("registry_epoch", &LeaseRow::registry_epoch);
  }
  bool operator==(const LeaseRow&) const = default;
};

// A generation whose objects must be removed, and may have been written, or be written still.
struct GarbageRow {
  static constexpr const char* kTable = "garbage";
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  std::int64_t bytes = 0;
  std::vector<std::string> servers;
  std::string store_url;
  bool quarantined = false;  // a late write is possible: not removed before capture_timeout has passed
  bool late = false;         // a write came after its removal; not counted as live
  std::int64_t tries = 0;
  std::string last_error;
  template <class V>
  static void fields(V&& v) {
    v.key("source_index", &GarbageRow::source_index);
    v.key("generation", &GarbageRow::generation);
    v("bytes", &GarbageRow::bytes);
    v("servers_json", &GarbageRow::servers);
    v("store_url", &GarbageRow::store_url);
    v("quarantined", &GarbageRow::quarantined);
    v("late", &GarbageRow::late);
    v("tries", &GarbageRow::tries);
    v("last_error", &GarbageRow::last_error);
  }
  bool operator==(const GarbageRow&) const = default;
};

struct CheckpointRow {
  static constexpr const char* kTable = "checkpoints";
  std::string consumer_id;
  std::int64_t step = 0;
  std::int64_t cursor = 0;
  std::string uri;
  template <class V>
  static void fields(V&& v) {
    v.key("consumer_id", &CheckpointRow::consumer_id);
    v.key("step", &CheckpointRow::step);
    v("cursor_position", &CheckpointRow::cursor);
    v("uri", &CheckpointRow::uri);
  }
  bool operator==(const CheckpointRow&) const = default;
};

struct CounterRow {
  static constexpr const char* kTable = "registry_meta";
  std::string name;
  std::int64_t value = 0;
  template <class V>
  static void fields(V&& v) {
    v.key("name", &CounterRow::name);
    v("value", &CounterRow::value);
  }
  bool operator==(const CounterRow&) const = default;
};

// Everything a database holds; `run` is unset for a new one.
struct Rows {
  std::optional<RunRow> run;
  std::vector<SourceRow> sources;
  std::vector<ConsumerRow> consumers;
  std::vector<EntryRow> entries;  // those that were ever queued
  std::vector<LeaseRow> leases;
  std::vector<GarbageRow> garbage;
  std::vector<CheckpointRow> checkpoints;
  std::vector<CounterRow> counters;
};

struct GarbageKey {
  std::int64_t source_index = 0;
  std::int64_t generation = 0;
  auto operator<=>(const GarbageKey&) const = default;
};

// What to write so that the database equals the Machine: rows to insert or replace, then rows to delete. One transaction.
struct Changes {
  Rows upserts;
  std::vector<std::string> erased_leases;
  std::vector<GarbageKey> erased_garbage;
  bool empty() const;
};

}  // namespace levada::fanout
