#include "producer/producer.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/log.h"
#include "base/random.h"
#include "producer/registry_calls.h"

namespace levada::producer {
namespace {

constexpr std::int64_t kDescribeTimeoutUs = 5'000'000;
constexpr std::int64_t kWorkerPauseUs = 200'000;
constexpr std::int64_t kTurnUs = 200'000;
constexpr std::int64_t kProgressUs = 1'000'000;
constexpr std::size_t kMostListed = 16;

}  // namespace

Producer::Producer(Options options, fanout::RegistryApi& registry, const CaptureContract& contract,
                   const std::vector<const PreparedSample*>& samples, const Clock& clock, ConnectServer connect,
                   OpenStore open_store)
    : options_(std::move(options)),
      registry_(registry),
      contract_(contract),
      samples_(samples),
      clock_(clock),
      connect_(std::move(connect)) {
  const CaptureWorker::Surroundings around{registry_, contract_, samples_, pause_, [] { return random_hex(2); }};
  std::map<std::string, ServerWatch*> watch_of;
  for (const std::string& url : options_.server_urls) {
    ServerWatch*& watch = watch_of[url];
    if (watch == nullptr) {
      servers_.push_back(std::make_unique<Server>(std::make_unique<ServerWatch>(url, contract_, options_.server)));
      servers_.back()->connection = connect_(url);
      watch = servers_.back()->watch.get();
      watches_.push_back(watch);
    }
    for (std::int64_t i = 0; i < options_.concurrency; ++i) {
      CaptureWorker::Options worker;
      worker.name = "worker-" + std::to_string(workers_.size());
      worker.batch = options_.capture_batch;
      worker.capture_timeout_us = options_.capture_timeout_us;
      worker.store = options_.server.store;
      worker.skips_failed = options_.skips_failed;
      workers_.push_back(std::make_unique<CaptureWorker>(worker, around, *watch, connect_(url)));
    }
  }
  remover_ = std::make_unique<RemovalWorker>(RemovalWorker::Options{contract_.store_id}, registry_, watches_,
                                             std::move(open_store), pause_);
}

Producer::~Producer() { pause_.stop(); }

void Producer::run_capture_worker(CaptureWorker& worker) {
  while (!pause_.stopped()) {
    const auto step = worker.step();
    if (!step.ok()) {
      events_.push({false, step.status()});
      return;
    }
    if (*step == CaptureWorker::Step::kDone) return;
    if (*step == CaptureWorker::Step::kFailed) pause_.wait_us(kWorkerPauseUs);
  }
}

void Producer::run_remover() {
  while (!pause_.stopped()) {
    const auto step = remover_->step();
    if (!step.ok()) {
      events_.push({false, step.status()});
      return;
    }
    if (*step == RemovalWorker::Step::kDrained) {
      events_.push({true, {}});
      return;
    }
    if (*step == RemovalWorker::Step::kFailed) pause_.wait_us(kWorkerPauseUs);
  }
}

void Producer::start_threads() {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    threads_.emplace_back("capture-" + std::to_string(i), [this, i] { run_capture_worker(*workers_[i]); });
  }
  threads_.emplace_back("remover", [this] { run_remover(); });
}

Status Producer::look_at_servers() {
  for (auto& server : servers_) {
    if (clock_.now_us() < server->next_look_us) continue;
    const Status described =
        server->watch->describe(*server->connection, registry_, kDescribeTimeoutUs, clock_.now_us());
    server->next_look_us =
        clock_.now_us() + (server->watch->is_up() ? options_.check_interval_us : options_.retry_interval_us);
    if (!described.ok() && described.code() != StatusCode::kUnavailable) return described;
  }
  return check_not_all_given_up();
}

Status Producer::check_not_all_given_up() const {
  std::string errors;
  for (const ServerWatch* watch : watches_) {
    if (!watch->is_given_up()) return {};
    errors += (errors.empty() ? "" : "; ") + watch->url() + ": " + watch->last_error();
  }
  return unavailable("every capture server is given up: " + errors);
}

Result<fanout::SnapshotReply> Producer::snapshot() {
  auto reply = call_until_heard(registry_, fanout::SnapshotRequest{}, pause_);
  if (!reply.ok()) return call_failed("snapshot", reply.error(), pause_);
  for (const auto& worker : workers_) {
    reply->counters["capture_calls"] += worker->capture_calls();
    reply->counters["capture_calls_lost"] += worker->lost_calls();
  }
  return *std::move(reply);
}

// Nothing but removals that have used up their tries is left, and no server is awaited whose return would free them.
bool Producer::is_stuck(const fanout::SnapshotReply& snapshot) const {
  if (snapshot.status == fanout::RunStatus::kActive || snapshot.stuck.empty()) return false;
  for (const ServerWatch* watch : watches_) {
    if (watch->state() == ServerWatch::State::kDown || watch->state() == ServerWatch::State::kUnknown) return false;
  }
  const auto evicting = snapshot.entries.find("evicting");
  const auto garbage = snapshot.counters.find("garbage");
  const std::int64_t left = (evicting == snapshot.entries.end() ? 0 : evicting->second) +
                            (garbage == snapshot.counters.end() ? 0 : garbage->second);
  return static_cast<std::int64_t>(snapshot.stuck.size()) >= left;
}

// Of a failed run only what a lost call may still write is left. Its server drops what nobody waits for, and the sweep takes
// the rest: nobody needs to be kept waiting.
bool Producer::awaits_late_writes_alone(const fanout::SnapshotReply& snapshot) {
  return snapshot.status == fanout::RunStatus::kFailed && snapshot.entries.at("absent") == snapshot.total_samples &&
         snapshot.counters.at("garbage") == snapshot.counters.at("garbage_quarantined");
}

void Producer::abort_run(const Status& cause) {
  if (!failure_.ok() || cause.code() == StatusCode::kAborted) return;
  failure_ = cause;
  LEVADA_LOG_ERROR("the run fails: ", cause);
  const auto told = call_until_heard(registry_, fanout::AbortRequest{cause.to_string()}, pause_);
  if (!told.ok()) LEVADA_LOG_ERROR("abort: ", told.error().message);
}

Result<bool> Producer::turn(const OnProgress& on_progress) {
  std::vector<Event> events;
  events_.take(events, std::chrono::microseconds(kTurnUs));
  bool is_drained = false;
  for (const Event& event : events) {
    is_drained = is_drained || event.is_drained;
    if (!event.failure.ok()) abort_run(event.failure);
  }
  if (const Status looked = look_at_servers(); !looked.ok()) abort_run(looked);
  if (clock_.now_us() >= next_progress_us_) {
    next_progress_us_ = clock_.now_us() + kProgressUs;
    LEVADA_ASSIGN_OR_RETURN(const fanout::SnapshotReply now, snapshot());
    if (on_progress) on_progress(now);
    is_drained = is_drained || is_stuck(now) || awaits_late_writes_alone(now);
  }
  return is_drained;
}

Result<fanout::SnapshotReply> Producer::finish() {
  pause_.stop();
  threads_.clear();
  LEVADA_ASSIGN_OR_RETURN(fanout::SnapshotReply last, snapshot());
  if (!last.stuck.empty()) {
    std::string list = std::to_string(last.stuck.size()) + " captured samples could not be removed:";
    for (std::size_t i = 0; i < std::min(last.stuck.size(), kMostListed); ++i) list += "\n  " + last.stuck[i];
    if (failure_.ok()) return Status(StatusCode::kFailedPrecondition, list);
    return Status(failure_.code(), failure_.message() + "; " + list, failure_.field());
  }
  for (const ServerWatch* watch : watches_) {
    if (!watch->is_up() || watch->store_url().empty()) continue;
    const auto left = remover_->sweep(watch->store_url(), options_.run_id);
    if (left.ok() && *left > 0) LEVADA_LOG_WARNING(watch->url(), ": ", *left, " objects outlived the run; removed now");
  }
  if (!failure_.ok()) return failure_;
  if (last.status == fanout::RunStatus::kFailed) return Status(StatusCode::kInternal, last.fail_reason);
  return last;
}

Result<fanout::SnapshotReply> Producer::run(std::stop_token stop, const OnProgress& on_progress) {
  const std::stop_callback on_stop(stop, [this] { pause_.stop(); });
  if (const Status looked = look_at_servers(); !looked.ok()) abort_run(looked);
  start_threads();
  for (bool is_drained = false; !is_drained;) {
    if (pause_.stopped()) return Status(StatusCode::kAborted, "stopped; the run may be taken up again");
    LEVADA_ASSIGN_OR_RETURN(is_drained, turn(on_progress));
  }
  return finish();
}

}  // namespace levada::producer
