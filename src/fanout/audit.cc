#include "fanout/audit.h"

#include <functional>

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
  // `subject` is what is being looked at, put into words only if something is wrong with it.
  void expect(bool holds, const char* problem) {
    if (!holds) problems_.push_back(subject_() + problem);
  }

  void entries() {
    for (std::int64_t p = 0; p < state_.total(); ++p) {
      const EntryRow& row = state_.entry(p).row;
      subject_ = [&] { return "entry " + std::to_string(p) + " (" + std::string(to_string(row.state)) + "): "; };
      const bool live = state_.is_live(p);
      expect(row.source_index == p, "stands at another position's place");
      expect((state_.present().count(p) == 1) == (row.state != EntryState::kAbsent), "5: lists disagree");
      expect(live == (row.reserved_bytes > 0), "7: reserved bytes do not match the state");
      expect(row.reserved_bytes <= state_.config().bytes_of(p), "7: counts for more than it may");
      const bool has_ref =
          row.state == EntryState::kCommitting || row.state == EntryState::kReady || row.state == EntryState::kEvicting;
      expect(has_ref == (row.ref != nullptr), "ref and state disagree");
      expect(!has_ref || row.ref->generation == row.generation, "4: the ref is of another generation");
      expect(row.state == EntryState::kAbsent || row.generation >= 1, "4: present without a generation");
      expect(!live || !row.servers.empty(), "may have bytes, but no server is named");
      expect(!row.condemned || row.state == EntryState::kReady || row.state == EntryState::kEvicting,
             "condemned without bytes");
      expect(row.state != EntryState::kEvicting || !state_.is_leased(p, now_us_), "8: evicted under a lease");
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
    subject_ = [&] {
      return "garbage " + std::to_string(key.source_index) + "/g" + std::to_string(key.generation) + ": ";
    };
    expect(key.generation <= row.generation, "4: of a generation that was never used");
    expect(!(state_.is_live(key.source_index) && key.generation == row.generation), "5: its generation is live");
    if (!garbage.row.late) {
      refs_ += 1;
      bytes_ += garbage.row.bytes;
    }
  }

  void limits() {
    subject_ = [] { return std::string(); };
    expect(refs_ == state_.live_refs && bytes_ == state_.live_bytes, "live counts are not the sums");
    expect(refs_ <= state_.config().max_live_refs, "6: max_live_refs exceeded");
    expect(bytes_ <= state_.config().max_live_bytes, "6: max_live_bytes exceeded");
  }

  void consumer(const Consumer& c) {
    subject_ = [&] { return "consumer " + c.row.consumer_id + ": "; };
    expect(c.row.cursor >= 0 && c.row.cursor <= state_.total(), "cursor outside the plan");
    expect(c.row.cursor == c.row.step * c.spec.quantum, "11: cursor is not step * quantum");
    expect(state_.checkpoints.count({c.row.consumer_id, 0}) == 1, "the checkpoint at step 0 is missing");
    std::int64_t current = 0;
    for (const auto& [p, lease] : c.leases) {
      if (lease.expires_us <= now_us_) continue;
      const EntryRow& row = state_.entry(p).row;
      expect(row.state == EntryState::kReady && row.generation == lease.generation,
             "9: leases a position whose bytes are not there");
      if (!state_.is_current(c, lease)) continue;
      current += 1;
      expect(p >= c.row.cursor && state_.window(c).contains(p), "9: leases outside its window");
    }
    expect(current <= c.spec.max_outstanding, "more leases than max_outstanding");
    expect(c.is_terminal() || c.row.state != ConsumerState::kEof || c.row.cursor + c.spec.quantum > state_.total(),
           "eof with a whole quantum left");
  }

  void counters() {
    subject_ = [] { return std::string(); };
    expect(materializations_ == state_.count(Count::kCaptures), "15: captures are not the sum over entries");
    expect(recaptures_ == state_.count(Count::kRecaptures), "15: recaptures are not the sum over entries");
  }

  const RunState& state_;
  std::int64_t now_us_;
  std::int64_t refs_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t materializations_ = 0;
  std::int64_t recaptures_ = 0;
  std::function<std::string()> subject_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> audit(const RunState& state, std::int64_t now_us) { return Auditor(state, now_us).run(); }

}  // namespace levada::fanout
