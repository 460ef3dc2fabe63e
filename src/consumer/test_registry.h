// What: TestRegistry, the real registry Machine behind the RegistryApi, with a clock that the test moves and faults that it
// orders: calls that never arrive, replies that get lost, restarts.
// Owner: tests.
// Thread: any; one mutex.
// Invariant: after every call the audit is clean, or the test fails naming the broken invariant.
// A wait answers "none yet" at once: time is the test's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/pause.h"
#include "fanout/audit.h"
#include "fanout/machine.h"
#include "fanout/registry_api.h"
#include "fanout/sim/memory_rows.h"

namespace levada::consumer {

// Moves the clock instead of sleeping.
class ClockPause final : public Pause {
 public:
  explicit ClockPause(ManualClock& clock) : clock_(clock) {}
  bool wait_us(std::int64_t duration_us) override {
    clock_.advance_us(duration_us);
    if (on_wait) on_wait();
    return !stopped_;
  }
  bool stopped() const override { return stopped_; }
  void stop() override { stopped_ = true; }
  void start_again() { stopped_ = false; }
  std::function<void()> on_wait;

 private:
  ManualClock& clock_;
  bool stopped_ = false;
};

class TestRegistry final : public fanout::RegistryApi {
 public:
  enum class Fault : std::uint8_t { kNone, kRequestLost, kReplyLost };

  TestRegistry(fanout::RunConfig config, const Clock& clock)
      : config_(std::make_shared<const fanout::RunConfig>(std::move(config))), clock_(clock) {
    restart();
  }

  // As after a crash: only what was committed is left.
  void restart() {
    std::lock_guard lock(mutex_);
    auto opened = fanout::Machine::open(config_, rows_.rows(), clock_.now_us());
    LEVADA_CHECK(opened.ok(), opened.status().to_string().c_str());
    machine_ = std::make_unique<fanout::Machine>(*std::move(opened));
    rows_.commit(machine_->take_changes());
  }

  const fanout::RunState& state() const { return machine_->state(); }
  fanout::EntryState entry(std::int64_t p) const { return state().entry(p).row.state; }
  std::int64_t cursor(std::size_t consumer) const { return state().consumers[consumer].row.cursor; }
  fanout::SnapshotReply snapshot() { return machine_->snapshot(clock_.now_us()); }
  bool is_down = false;
  // Asked before each call.
  std::function<Fault(const fanout::Request&)> fault;
  // Told of each call that was carried out.
  std::function<void(const fanout::Request&)> on_call;

 protected:
  fanout::Outcome<fanout::Reply> call_any(fanout::Request request) override {
    std::lock_guard lock(mutex_);
    const fanout::Error unavailable{fanout::ErrorCode::kUnavailable, "the test's network"};
    const Fault order = fault ? fault(request) : Fault::kNone;
    if (is_down || order == Fault::kRequestLost) return unavailable;
    machine_->on_time(clock_.now_us());
    auto outcome = machine_->apply(request, clock_.now_us());
    if (outcome.ok() && fanout::Machine::waits(request, *outcome)) machine_->end_wait(request);
    rows_.commit(machine_->take_changes());
    for (const std::string& broken : fanout::audit(machine_->state(), clock_.now_us())) ADD_FAILURE() << broken;
    if (on_call) on_call(request);
    if (order == Fault::kReplyLost) return unavailable;
    return outcome;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const fanout::RunConfig> config_;
  const Clock& clock_;
  fanout::MemoryRows rows_;
  std::unique_ptr<fanout::Machine> machine_;
};

}  // namespace levada::consumer
