// What: RunState, everything the registry knows about one run, the questions asked of it, and what of it is not yet
// written to the database.
// Owner: the Machine, by value; copyable, so that a model checker can branch.
// Thread: the Machine's.
// Invariant: live_refs and live_bytes are the sums over entries and garbage (audit.h recounts them); questions are pure;
// whoever changes a row marks it dirty. The functions that change states are in entry_edges.h and the Machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanout/rows.h"
#include "fanout/run_config.h"

namespace levada::fanout {

// Half-open: [begin, end).
struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool contains(std::int64_t p) const { return p >= begin && p < end; }
};

struct Lease {
  std::string token;
  std::int64_t generation = 0;
  std::int64_t session_epoch = 0;
  std::int64_t registry_epoch = 0;
  std::int64_t expires_us = 0;
  bool ready_at_request = false;
};

struct Consumer {
  ConsumerSpec spec;
  ConsumerRow row;
  std::int64_t session_expires_us = 0;       // of the present session; another nonce is refused until then
  std::int64_t patience_ends_us = 0;         // expected: registration timeout; detached: grace; then suspended
  std::map<std::int64_t, Lease> leases;      // by position, ghosts included, at most one each
  std::map<std::string, std::int64_t> lost;  // tokens taken back and where; told until acknowledged past
  PositionRange wait;                        // what an acquire waits for; empty: nothing
  std::int64_t wait_since_us = 0;
  std::int64_t blocked_us = 0;
  bool is_terminal() const { return row.state == ConsumerState::kCompleted || row.state == ConsumerState::kFailed; }
};

// Durations since this opening of the run.
struct Timing {
  std::int64_t count = 0, total_us = 0, max_us = 0;
  void note(std::int64_t duration_us) {
    count += 1;
    total_us += duration_us;
    max_us = std::max(max_us, duration_us);
  }
};

// Which limit keeps what is queued from being captured.
enum class Shortage : std::uint8_t { kNone, kRefs, kBytes };

struct Entry {
  EntryRow row;
  std::int64_t since_us = 0;        // capturing: first claimed; evicting: given up by all
  std::int64_t not_before_us = 0;   // queued: retry backoff; evicting: next try
  std::int64_t deadline_us = 0;     // capturing: after it the worker counts as dead; evicting: handed out until
  std::int64_t quiet_after_us = 0;  // an attempt whose reply was lost may write until then: no removal before
  std::int64_t removal_tries = 0;
  std::int64_t good_reader = -1;  // a consumer that read this generation well
  bool retry_due = false;         // capturing whose reply was lost: to be handed out again, slot kept
  bool dirty = false;
};

struct Garbage {
  GarbageRow row;
  std::int64_t since_us = 0;
  std::int64_t not_before_us = 0;
  std::int64_t handed_until_us = 0;
};

enum class Count : std::uint8_t {
  kSchedulerCursor,
  kCaptures,
  kRecaptures,
  kPeakLiveRefs,
  kPeakLiveBytes,
  kRetries,
  kLostReports,
  kShed,
  kExpiredLeases,
  kSkippedTail,
  kSkippedSamples,
  kCaptureFailures,
};
inline constexpr std::size_t kCounts = 12;
std::string_view to_string(Count count);

class RunState {
 public:
  explicit RunState(std::shared_ptr<const RunConfig> config);

  // Shared because copies of the state (the model checker's) all obey the same, constant configuration.
  const RunConfig& config() const { return *config_; }
  std::int64_t total() const { return config_->total(); }
  RunRow run;
  std::vector<Consumer> consumers;
  std::map<GarbageKey, Garbage> garbage;
  std::map<std::pair<std::string, std::int64_t>, CheckpointRow> checkpoints;
  std::int64_t live_refs = 0;
  std::int64_t live_bytes = 0;
  Timing capture_time;                // from the first claim of a generation until it is ready
  Timing reclaim_time;                // from when nobody keeps its bytes until they are removed
  Timing demand_wait;                 // of acquires that did not find their position ready
  std::int64_t leases_granted = 0;    // in this registry epoch: numbers their tokens
  std::int64_t ready_at_request = 0;  // of them

  // What the last claim that got nothing lacked, from `now_us` on; kNone: nothing.
  void note_shortage(Shortage shortage, std::int64_t now_us);
  // Time spent without one of these, up to now.
  std::int64_t short_of_us(Shortage shortage, std::int64_t now_us) const;

  Entry& entry(std::int64_t p) { return entries_[static_cast<std::size_t>(p)]; }
  const Entry& entry(std::int64_t p) const { return entries_[static_cast<std::size_t>(p)]; }
  // Positions that are not absent, ascending.
  const std::set<std::int64_t>& present() const { return present_; }
  // The only way an entry's state changes: keeps present() and dirties the row.
  void set_state(std::int64_t p, EntryState state);
  // Counts `refs` and `bytes` in or out of what is live, and keeps the peaks.
  void count_live(std::int64_t refs, std::int64_t bytes);
  std::int64_t& count(Count which);  // for changing: dirties it
  std::int64_t count(Count which) const { return counts_[static_cast<std::size_t>(which)]; }

  // --- questions ---
  bool is_active() const { return run.status == RunStatus::kActive; }
  PositionRange window(const Consumer& c) const;
  // [cursor, cursor + quantum), empty if no whole quantum is left.
  PositionRange next_quantum(const Consumer& c) const;
  // Its next quantum is captured for it and never shed.
  bool has_needs(const Consumer& c) const;
  // What is in its window is kept while there is room.
  bool retains(const Consumer& c) const;
  // Ends where a leader must wait for the slowest consumer (max_lead).
  std::int64_t pace_limit() const;
  bool is_needed(std::int64_t p) const;
  bool is_retained(std::int64_t p) const;
  bool is_leased(std::int64_t p, std::int64_t now_us) const;
  // Some consumer reads ahead to p, or needs it, or waits for it.
  bool is_wanted(std::int64_t p) const;
  // The lease is of the present session of a live consumer; otherwise a ghost, which protects but cannot be renewed.
  bool is_current(const Consumer& c, const Lease& lease) const;
  bool is_live(std::int64_t p) const;  // its bytes exist, or may
  // Needed positions that are not live and not failed, each once, ascending.
  std::vector<std::int64_t> missing_needs() const;
  // May `c` pin p, outside its next quantum, without taking what any next quantum needs?
  bool may_pin_ahead(const Consumer& c, std::int64_t p, std::int64_t now_us) const;

  // --- what upkeep must look at again ---
  void touch(std::int64_t p) {
    touched_.push_back(p);
    note_change();
  }
  void touch(PositionRange range) {
    for (std::int64_t p = range.begin; p < range.end; ++p) touch(p);
  }
  void touch_all() {
    touched_.assign(present_.begin(), present_.end());
    note_change();
  }
  // Something that upkeep depends on is another now. True at most once per change.
  void note_change() { changed_ = true; }
  bool take_changed() { return std::exchange(changed_, false); }
  std::vector<std::int64_t> take_touched() { return std::exchange(touched_, {}); }

  // --- what is not yet written ---
  void mark_run() { run_dirty_ = true; }
  void mark(const Consumer& c) { dirty_consumers_.insert(index_of(c)); }
  void mark_entry(std::int64_t p);
  void mark(const GarbageKey& key) { dirty_garbage_.insert(key); }
  void mark_lease(const Consumer& c, std::int64_t p) { dirty_leases_.insert({index_of(c), p}); }
  void erase_lease(Consumer& c, std::int64_t p);
  void mark_checkpoint(const CheckpointRow& row) { dirty_checkpoints_.push_back(row); }
  void mark_sources() { sources_dirty_ = true; }
  Changes take_changes();
  std::size_t index_of(const Consumer& c) const { return static_cast<std::size_t>(&c - consumers.data()); }

 private:
  std::shared_ptr<const RunConfig> config_;
  std::vector<Entry> entries_;
  std::set<std::int64_t> present_;
  std::int64_t counts_[kCounts] = {};
  std::int64_t max_entry_bytes_ = 0;
  Shortage shortage_ = Shortage::kNone;
  std::int64_t shortage_since_us_ = 0;
  std::int64_t short_of_us_[3] = {};
  std::vector<std::int64_t> touched_;
  bool changed_ = false;

  bool run_dirty_ = false;
  bool sources_dirty_ = false;
  bool counts_dirty_[kCounts] = {};
  std::set<std::size_t> dirty_consumers_;
  std::vector<std::int64_t> dirty_entries_;
  std::set<GarbageKey> dirty_garbage_;
  std::set<std::pair<std::size_t, std::int64_t>> dirty_leases_;
  std::vector<std::string> erased_leases_;
  std::vector<CheckpointRow> dirty_checkpoints_;
};

}  // namespace levada::fanout
