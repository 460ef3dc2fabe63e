#include "fanout/run_state.h"

#include <algorithm>
#include <array>
#include <limits>

namespace levada::fanout {

std::string_view to_string(Count count) {
  static constexpr std::array<std::string_view, kCounts> kNames = {
      "scheduler_cursor", "capture_count", "recapture_count", "peak_live_refs", "peak_live_bytes", "retries",
      "lost_reports",     "shed",          "leases_expired",  "skipped_tail",   "skipped_samples", "capture_failures"};
  return kNames[static_cast<std::size_t>(count)];
}

bool Changes::empty() const {
  return !upserts.run && upserts.sources.empty() && upserts.consumers.empty() && upserts.entries.empty() &&
         upserts.leases.empty() && upserts.garbage.empty() && upserts.checkpoints.empty() && upserts.counters.empty() &&
         erased_leases.empty() && erased_garbage.empty();
}

RunState::RunState(std::shared_ptr<const RunConfig> config)
    : config_(std::move(config)),
      entries_(static_cast<std::size_t>(config_->total())),
      max_entry_bytes_(config_->max_entry_bytes()) {
  for (std::size_t p = 0; p < entries_.size(); ++p) entries_[p].row.source_index = static_cast<std::int64_t>(p);
}

void RunState::set_state(std::int64_t p, EntryState state) {
  entry(p).row.state = state;
  note_change();
  if (state == EntryState::kAbsent) {
    present_.erase(p);
  } else {
    present_.insert(p);
  }
  mark_entry(p);
}

void RunState::count_live(std::int64_t refs, std::int64_t bytes) {
  note_change();
  live_refs += refs;
  live_bytes += bytes;
  if (live_refs > count(Count::kPeakLiveRefs)) count(Count::kPeakLiveRefs) = live_refs;
  if (live_bytes > count(Count::kPeakLiveBytes)) count(Count::kPeakLiveBytes) = live_bytes;
}

std::int64_t& RunState::count(Count which) {
  counts_dirty_[static_cast<std::size_t>(which)] = true;
  return counts_[static_cast<std::size_t>(which)];
}

void RunState::note_shortage(Shortage shortage, std::int64_t now_us) {
  short_of_us_[static_cast<std::size_t>(shortage_)] += now_us - shortage_since_us_;
  shortage_ = shortage;
  shortage_since_us_ = now_us;
}

std::int64_t RunState::short_of_us(Shortage shortage, std::int64_t now_us) const {
  return short_of_us_[static_cast<std::size_t>(shortage)] + (shortage == shortage_ ? now_us - shortage_since_us_ : 0);
}

PositionRange RunState::window(const Consumer& c) const {
  return {std::max<std::int64_t>(0, c.row.cursor - c.spec.lookbehind),
          std::min(total(), c.row.cursor + c.spec.lookahead + 1)};
}

PositionRange RunState::next_quantum(const Consumer& c) const {
  const std::int64_t end = c.row.cursor + c.spec.quantum;
  return end <= total() ? PositionRange{c.row.cursor, end} : PositionRange{c.row.cursor, c.row.cursor};
}

bool RunState::has_needs(const Consumer& c) const {
  const ConsumerState state = c.row.state;
  return state == ConsumerState::kInitializing || state == ConsumerState::kReady || state == ConsumerState::kDetached;
}

bool RunState::retains(const Consumer& c) const { return has_needs(c) || c.row.state == ConsumerState::kExpected; }

std::int64_t RunState::pace_limit() const {
  if (config().max_lead == 0) return total();
  std::int64_t slowest = total();
  for (const Consumer& c : consumers) {
    if (retains(c)) slowest = std::min(slowest, c.row.cursor);
  }
  return slowest + config().max_lead;
}

bool RunState::is_needed(std::int64_t p) const {
  if (!is_active() || p >= pace_limit()) return false;
  return std::any_of(consumers.begin(), consumers.end(),
                     [&](const Consumer& c) { return has_needs(c) && next_quantum(c).contains(p); });
}

bool RunState::is_retained(std::int64_t p) const {
  if (!is_active()) return false;
  return std::any_of(consumers.begin(), consumers.end(),
                     [&](const Consumer& c) { return retains(c) && window(c).contains(p); });
}

bool RunState::is_leased(std::int64_t p, std::int64_t now_us) const {
  return std::any_of(consumers.begin(), consumers.end(), [&](const Consumer& c) {
    const auto found = c.leases.find(p);
    return found != c.leases.end() && found->second.expires_us > now_us;
  });
}

bool RunState::is_wanted(std::int64_t p) const {
  if (!is_active() || p >= pace_limit()) return false;
  return std::any_of(consumers.begin(), consumers.end(),
                     [&](const Consumer& c) { return has_needs(c) && p >= c.row.cursor && window(c).contains(p); });
}

bool RunState::is_current(const Consumer& c, const Lease& lease) const {
  return !c.is_terminal() && lease.registry_epoch == run.registry_epoch && lease.session_epoch == c.row.session_epoch;
}

bool RunState::is_live(std::int64_t p) const {
  switch (entry(p).row.state) {
    case EntryState::kCapturing:
    case EntryState::kCommitting:
    case EntryState::kReady:
    case EntryState::kEvicting: return true;
    default: return false;
  }
}

std::vector<std::int64_t> RunState::missing_needs() const {
  std::vector<std::int64_t> missing;
  if (!is_active()) return missing;
  const std::int64_t pace = pace_limit();
  for (const Consumer& c : consumers) {
    if (!has_needs(c)) continue;
    const PositionRange need = next_quantum(c);
    for (std::int64_t p = need.begin; p < std::min(need.end, pace); ++p) {
      if (!is_live(p) && entry(p).row.state != EntryState::kFailed) missing.push_back(p);
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

// Every consumer that may still want a next quantum keeps room for one of the longest samples, whatever its cursor: so an
// acknowledgement, which only turns "ahead" into "next", never needs more than it had.
bool RunState::may_pin_ahead(const Consumer& c, std::int64_t p, std::int64_t now_us) const {
  std::int64_t refs = 1;
  std::int64_t bytes = config().bytes_of(p);
  for (const Consumer& d : consumers) {
    const bool may_need = !d.is_terminal() && d.row.state != ConsumerState::kEof;
    if (may_need) {
      refs += d.spec.quantum;
      bytes += d.spec.quantum * max_entry_bytes_;
    }
    const PositionRange next = next_quantum(d);
    for (const auto& [position, lease] : d.leases) {
      if (lease.expires_us <= now_us || (may_need && next.contains(position))) continue;
      if (&d == &c && position == p) continue;
      refs += 1;
      bytes += config().bytes_of(position);
    }
  }
  return refs <= config().max_live_refs && bytes <= config().max_live_bytes;
}

void RunState::mark_entry(std::int64_t p) {
  Entry& e = entry(p);
  if (e.dirty) return;
  e.dirty = true;
  dirty_entries_.push_back(p);
}

void RunState::erase_lease(Consumer& c, std::int64_t p) {
  const auto found = c.leases.find(p);
  if (found == c.leases.end()) return;
  note_change();
  erased_leases_.push_back(found->second.token);
  c.leases.erase(found);
}

Changes RunState::take_changes() {
  Changes changes;
  Rows& rows = changes.upserts;
  if (run_dirty_) rows.run = run;
  if (sources_dirty_) {
    for (std::int64_t p = 0; p < total(); ++p) {
      const Source& source = config().sources[static_cast<std::size_t>(p)];
      rows.sources.push_back({p, source.sample_id, source.ntokens});
    }
  }
  for (const std::size_t c : dirty_consumers_) rows.consumers.push_back(consumers[c].row);
  for (const std::int64_t p : dirty_entries_) {
    entry(p).dirty = false;
    rows.entries.push_back(entry(p).row);
  }
  for (const auto& [c, p] : dirty_leases_) {
    const Consumer& consumer = consumers[c];
    const auto found = consumer.leases.find(p);
    if (found == consumer.leases.end()) continue;  // granted and ended since: its token is among the erased
    const Lease& lease = found->second;
    rows.leases.push_back(
        {lease.token, consumer.row.consumer_id, p, lease.generation, lease.session_epoch, lease.registry_epoch});
  }
  for (const GarbageKey& key : dirty_garbage_) {
    const auto found = garbage.find(key);
    if (found == garbage.end()) {
      changes.erased_garbage.push_back(key);
    } else {
      rows.garbage.push_back(found->second.row);
    }
  }
  rows.checkpoints = std::move(dirty_checkpoints_);
  for (std::size_t i = 0; i < kCounts; ++i) {
    if (counts_dirty_[i]) rows.counters.push_back({std::string(to_string(static_cast<Count>(i))), counts_[i]});
    counts_dirty_[i] = false;
  }
  changes.erased_leases = std::move(erased_leases_);
  run_dirty_ = sources_dirty_ = false;
  dirty_consumers_.clear();
  dirty_entries_.clear();
  dirty_leases_.clear();
  dirty_garbage_.clear();
  dirty_checkpoints_.clear();
  erased_leases_.clear();
  return changes;
}

}  // namespace levada::fanout
