#include "fanout/audit.h"

namespace levada::fanout {

namespace {

class Auditor {
 public:
  Auditor(const RunState& state, std::int64_t now_us) : state_(state), now_us_(now_us) {}

  std::vector<std::string> run() {
    entries();
    for (const auto& [key, garbage] : state_.garbage) one_garbage(key, garbage);
    limits();
    for (const Consumer& c : state_.consumers) consumer(c);
    counters();
    return std::move(problems_);
  }

 private:
  void expect(bool holds, const std::string& problem) {
    if (!holds) problems_.push_back(problem);
  }

  void entries() {
    for (std::int64_t p = 0; p < state_.total(); ++p) {
      const EntryRow& row = state_.entry(p).row;
      const std::string name = "entry " + std::to_string(p) + " (" + std::string(to_string(row.state)) + "): ";
      const bool live = state_.is_live(p);
      expect(row.source_index == p, name + "stands at another position's place");
      expect((state_.present().count(p) == 1) == (row.state != EntryState::kAbsent), name + "5: lists disagree");
      expect(live == (row.reserved_bytes > 0), name + "7: reserved bytes do not match the state");
      expect(row.reserved_bytes <= state_.config().bytes_of(p), name + "7: counts for more than it may");
      const bool has_ref =
          row.state == EntryState::kCommitting || row.state == EntryState::kReady || row.state == EntryState::kEvicting;
      expect(has_ref == (row.ref != nullptr), name + "ref and state disagree");
      expect(!has_ref || row.ref->generation == row.generation, name + "4: the ref is of another generation");
      expect(row.state == EntryState::kAbsent || row.generation >= 1, name + "4: present without a generation");
      expect(!live || !row.servers.empty(), name + "may have bytes, but no server is named");
      expect(!row.condemned || row.state == EntryState::kReady || row.state == EntryState::kEvicting,
             name + "condemned without bytes");
      expect(row.state != EntryState::kEvicting || !state_.is_leased(p, now_us_), name + "8: evicted under a lease");
      if (live) {
        refs_ += 1;
        bytes_ += row.reserved_bytes;
      }
      materializations_ += row.materializations;
      recaptures_ += row.materializations > 1 ? row.materializations - 1 : 0;
    }
  }

  void one_garbage(const GarbageKey& key, const Garbage& garbage) {
    const EntryRow& row = state_.entry(key.source_index).row;
    const std::string name =
        "garbage " + std::to_string(key.source_index) + "/g" + std::to_string(key.generation) + ": ";
    expect(key.generation <= row.generation, name + "4: of a generation that was never used");
    expect(!(state_.is_live(key.source_index) && key.generation == row.generation), name + "5: its generation is live");
    if (!garbage.row.late) {
      refs_ += 1;
      bytes_ += garbage.row.bytes;
    }
  }

  void limits() {
    expect(refs_ == state_.live_refs && bytes_ == state_.live_bytes, "live counts are not the sums");
    expect(refs_ <= state_.config().max_live_refs, "6: max_live_refs exceeded: " + std::to_string(refs_));
    expect(bytes_ <= state_.config().max_live_bytes, "6: max_live_bytes exceeded: " + std::to_string(bytes_));
  }

  void consumer(const Consumer& c) {
    const std::string name = "consumer " + c.row.consumer_id + ": ";
    expect(c.row.cursor >= 0 && c.row.cursor <= state_.total(), name + "cursor outside the plan");
    expect(c.row.cursor == c.row.step * c.spec.quantum, name + "11: cursor is not step * quantum");
    expect(state_.checkpoints.count({c.row.consumer_id, 0}) == 1, name + "the checkpoint at step 0 is missing");
    std::int64_t current = 0;
    for (const auto& [p, lease] : c.leases) {
      if (lease.expires_us <= now_us_) continue;
      const EntryRow& row = state_.entry(p).row;
      expect(row.state == EntryState::kReady && row.generation == lease.generation,
             name + "9: leases position " + std::to_string(p) + ", whose bytes are not there");
      if (!state_.is_current(c, lease)) continue;
      current += 1;
      expect(p >= c.row.cursor && state_.window(c).contains(p), name + "9: leases outside its window");
    }
    expect(current <= c.spec.max_outstanding, name + "more leases than max_outstanding");
    expect(c.is_terminal() || c.row.state != ConsumerState::kEof || c.row.cursor + c.spec.quantum > state_.total(),
           name + "eof with a whole quantum left");
  }

  void counters() {
    expect(materializations_ == state_.count(Count::kCaptures), "15: captures are not the sum over entries");
    expect(recaptures_ == state_.count(Count::kRecaptures), "15: recaptures are not the sum over entries");
  }

  const RunState& state_;
  std::int64_t now_us_;
  std::int64_t refs_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t materializations_ = 0;
  std::int64_t recaptures_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> audit(const RunState& state, std::int64_t now_us) { return Auditor(state, now_us).run(); }

}  // namespace levada::fanout
