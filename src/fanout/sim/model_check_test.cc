// Every state of a small run, explored: no deadlock, no consumer that another can block, limits and generations kept.
//
// Actors: the producer (claim, commit, complete, remove) and each consumer (lease one position ahead or next, acknowledge,
// complete). Time stands still: leases never expire, so a stopped consumer holds its leases for ever.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "fanout/audit.h"
#include "fanout/machine.h"
#include "fanout/sim/driver.h"
#include "support/instrumented.h"

namespace levada::fanout {
namespace {

constexpr std::int64_t kNow = 1;

// What decides the future: numbers that only count (generations, tokens, op numbers) are left out.
std::string canonical(const RunState& state) {
  std::string text;
  for (std::int64_t p = 0; p < state.total(); ++p) {
    const Entry& e = state.entry(p);
    text += static_cast<char>('0' + static_cast<int>(e.row.state) + (e.row.prefetch_suppressed ? 16 : 0) +
                              (e.deadline_us > 0 && e.row.state == EntryState::kEvicting ? 32 : 0));
  }
  for (const Consumer& c : state.consumers) {
    text += '|';
    text += static_cast<char>('0' + c.row.cursor);
    text += static_cast<char>('0' + static_cast<int>(c.row.state));
    for (const auto& [p, lease] : c.leases) text += static_cast<char>('a' + p);
    text += static_cast<char>('A' + c.wait.begin);
    text += static_cast<char>('A' + c.wait.end);
  }
  text += static_cast<char>('0' + state.count(Count::kSchedulerCursor));
  text += static_cast<char>('0' + static_cast<int>(state.run.status));
  return text;
}

struct Edge {
  std::uint32_t from;
  std::uint32_t to;
  std::int32_t actor;  // a consumer, or -1: the producer
};

class Explorer {
 public:
  explicit Explorer(RunConfig config) : driver_(std::move(config)) { driver_.join_all(); }

  void explore() {
    visit(driver_.machine());
    while (!frontier_.empty() && problems_.empty()) {
      const std::uint32_t id = frontier_.front().first;
      const Machine machine = std::move(frontier_.front().second);
      frontier_.pop_front();
      producer_steps(id, machine);
      for (std::size_t c = 0; c < driver_.sessions.size(); ++c) consumer_steps(id, machine, c);
    }
  }

  std::size_t states() const { return finished_.size(); }
  const std::vector<std::string>& problems() const { return problems_; }

  // States from which no path, taken by the actors that `may_act` admits, reaches a state where `is_goal` holds.
  template <class MayAct, class IsGoal>
  std::size_t stuck(MayAct may_act, IsGoal is_goal) const {
    std::vector<std::vector<std::uint32_t>> back(states());
    for (const Edge& edge : edges_) {
      if (may_act(edge.actor)) back[edge.to].push_back(edge.from);
    }
    std::vector<bool> reaches(states(), false);
    std::deque<std::uint32_t> queue;
    for (std::uint32_t id = 0; id < states(); ++id) {
      if (is_goal(finished_[id])) {
        reaches[id] = true;
        queue.push_back(id);
      }
    }
    while (!queue.empty()) {
      const std::uint32_t id = queue.front();
      queue.pop_front();
      for (const std::uint32_t from : back[id]) {
        if (reaches[from]) continue;
        reaches[from] = true;
        queue.push_back(from);
      }
    }
    return static_cast<std::size_t>(std::count(reaches.begin(), reaches.end(), false));
  }

 private:
  // bit c: consumer c has finished; bit 31: everything is removed.
  static std::uint32_t finished_in(const RunState& state) {
    std::uint32_t bits = 0;
    for (std::size_t c = 0; c < state.consumers.size(); ++c) {
      bits |= std::uint32_t{state.consumers[c].row.state == ConsumerState::kCompleted} << c;
    }
    return bits | std::uint32_t{state.run.status == RunStatus::kCompleted} << 31;
  }

  std::uint32_t visit(const Machine& machine) {
    const auto [found, is_new] = ids_.emplace(canonical(machine.state()), static_cast<std::uint32_t>(ids_.size()));
    if (is_new) {
      finished_.push_back(finished_in(machine.state()));
      for (const std::string& problem : audit(machine.state(), kNow)) problems_.push_back(problem);
      frontier_.emplace_back(found->second, machine);
    }
    return found->second;
  }

  void note(std::uint32_t from, const Machine& before, const Machine& after, std::int32_t actor) {
    for (std::int64_t p = 0; p < before.state().total(); ++p) {
      const EntryRow& old_row = before.state().entry(p).row;
      const EntryRow& new_row = after.state().entry(p).row;
      const bool recaptured = new_row.state == EntryState::kQueued && old_row.state != EntryState::kQueued;
      if (new_row.generation < old_row.generation || (recaptured && new_row.generation == old_row.generation)) {
        problems_.push_back("generation reused at position " + std::to_string(p));
      }
    }
    const std::uint32_t to = visit(after);
    if (to != from) edges_.push_back({from, to, actor});
  }

  template <class R>
  void step(std::uint32_t from, const Machine& machine, const R& request, std::int32_t actor) {
    Machine next = machine;
    if (!next.call(request, kNow).ok()) return;
    next.take_changes();
    note(from, machine, next, actor);
  }

  void producer_steps(std::uint32_t from, const Machine& machine) {
    step(from, machine, ClaimRequest{"w" + std::to_string(claim_id_), "s", ++claim_id_, 1, 0}, -1);
    for (const std::int64_t p : machine.state().present()) {
      const Entry& e = machine.state().entry(p);
      if (e.row.state == EntryState::kCapturing) {
        CaptureOrder order;
        order.source_sample_id = machine.state().config().sources[static_cast<std::size_t>(p)].sample_id;
        order.generation = e.row.generation;
        step(from, machine,
             MarkCommittingRequest{p, e.row.generation, e.row.nonce, ref_for(order), e.row.reserved_bytes}, -1);
      } else if (e.row.state == EntryState::kCommitting) {
        step(from, machine, CompleteCaptureRequest{p, e.row.generation, e.row.nonce}, -1);
      } else if (e.row.state == EntryState::kEvicting) {
        step(from, machine, FinishEvictionRequest{p, e.row.generation, {}}, -1);
      }
    }
  }

  void consumer_steps(std::uint32_t from, const Machine& machine, std::size_t c) {
    const Consumer& consumer = machine.state().consumers[c];
    const ConsumerRow& row = consumer.row;
    const SessionKey key = driver_.key(c);
    const OpKey op{key.session_id, key.session_epoch, row.last_op + 1};
    const auto actor = static_cast<std::int32_t>(c);
    const PositionRange next = machine.state().next_quantum(consumer);
    bool holds_next = next.begin != next.end;
    for (std::int64_t p = row.cursor; p < machine.state().window(consumer).end; ++p) {
      const bool held = consumer.leases.count(p) != 0;
      if (!held) step(from, machine, AcquireRequest{key, p, 1, 1000}, actor);
      if (next.contains(p)) holds_next = holds_next && held;
    }
    if (holds_next) {
      step(from, machine, AdvanceRequest{op, row.cursor, row.cursor + row.quantum, row.step + 1, true}, actor);
    }
    if (row.state == ConsumerState::kEof) {
      step(from, machine, CompleteConsumerRequest{op, row.step, row.cursor, false}, actor);
    }
  }

  Driver driver_;
  std::int64_t claim_id_ = 0;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::uint32_t> finished_;
  std::deque<std::pair<std::uint32_t, Machine>> frontier_;
  std::vector<Edge> edges_;
  std::vector<std::string> problems_;
};

struct Case {
  const char* name;
  std::vector<ConsumerSpec> consumers;
  std::int64_t total;
  std::int64_t max_live_refs;  // the least that check() admits, or one more
};

class ModelCheck : public testing::TestWithParam<Case> {};

TEST_P(ModelCheck, EveryConsumerCanAlwaysFinishWhateverTheOthersDo) {
  if (test::kRacesOnly) GTEST_SKIP() << "one thread";
  const Case& c = GetParam();
  Explorer explorer(small_config(c.consumers, c.total, c.max_live_refs));
  explorer.explore();
  ASSERT_EQ(explorer.problems(), std::vector<std::string>());
  RecordProperty("states", static_cast<int>(explorer.states()));
  std::printf("%s: %zu states\n", c.name, explorer.states());

  const auto everyone = [](std::int32_t) { return true; };
  EXPECT_EQ(explorer.stuck(everyone, [](std::uint32_t done) { return (done >> 31) != 0; }), 0u)
      << "states from which the run cannot end";
  for (std::size_t i = 0; i < c.consumers.size(); ++i) {
    const auto alone = [&](std::int32_t actor) { return actor < 0 || actor == static_cast<std::int32_t>(i); };
    EXPECT_EQ(explorer.stuck(alone, [&](std::uint32_t done) { return (done >> i & 1) != 0; }), 0u)
        << "states in which the others, standing still, block consumer " << i;
  }
}

// Instrumented builds look for other faults than this one; they explore the smallest run only.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::vector<Case> kCases = {{"TwoAtTheLimit", {spec(1, 2, 2, 2), spec(1, 2, 2, 2)}, 5, 2}};
#else
const std::vector<Case> kCases = {{"TwoAtTheLimit", {spec(1, 2, 2, 2), spec(1, 2, 2, 2)}, 5, 2},
                                  {"TwoWithOneSpare", {spec(1, 2, 2, 2), spec(1, 2, 2, 2)}, 5, 3},
                                  {"QuantaOfTwoAndOne", {spec(2, 3, 2, 3), spec(1, 2, 1, 2)}, 6, 3},
                                  {"QuantaOfTwoAndOneWithASpare", {spec(2, 2, 2, 3), spec(1, 1, 1, 2)}, 5, 4},
                                  {"ThreeAtTheLimit", {spec(1, 1, 1, 1), spec(1, 1, 1, 2), spec(1, 1, 1, 2)}, 3, 3}};
#endif

INSTANTIATE_TEST_SUITE_P(Small, ModelCheck, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace levada::fanout
