#include <algorithm>

#include "fanout/sim/actors.h"

namespace levada::fanout::sim {

namespace {

constexpr std::int64_t kMarginUs = 5'000'000;

std::int64_t server_at(const std::string& url) { return url.back() - '0'; }

}  // namespace

SimConsumer::SimConsumer(World& world, std::size_t index)
    : world_(world), index_(index), spec_(world.config().consumers[index]) {
  save_every_ = world.dice.between(1, 3);
}

void SimConsumer::crash() {
  process_ += 1;
  session_id_.clear();
  leases_.clear();
  reading_.reset();
  world_.end_read(index_);
  verified_.clear();
  trained_.clear();
  step_ = 0;
  at_end_ = false;
  needs_resume_ = true;
  paused_until_us_ = 0;
}

void SimConsumer::step() {
  if (finished_ || world_.now_us < paused_until_us_) return;
  if (session_id_.empty()) return start_session();
  if (needs_resume_) return resume();
  switch (world_.dice.below(6)) {
    case 0: return beat();
    case 1:
    case 2: return acquire();
    case 3: return reading_ ? end_read() : begin_read();
    default: break;
  }
  if (train()) return;
  if (step_ > registry_step_) return save_and_acknowledge();
  if (at_end_) return finish();
  if (!reading_) begin_read();
}

void SimConsumer::start_session() {
  const RunConfig& config = world_.config();
  RegisterRequest request{config.run_id,
                          spec_.consumer_id,
                          config.contract_digest,
                          config.source_digest,
                          "recipe",
                          spec_.lookbehind,
                          spec_.lookahead,
                          spec_.prefetch_depth,
                          spec_.max_outstanding,
                          spec_.quantum,
                          std::to_string(process_),
                          false};
  request.takeover = process_ > 0;  // its supervisor knows that the old process is dead
  const auto answer = world_.call(request);
  if (!answer) return;
  if (!answer->ok()) return on_error(answer->error());
  reconcile(**answer);
}

// A new session of the same process goes on where it is: what it trained, it may still acknowledge.
void SimConsumer::reconcile(const RegisterReply& reply) {
  session_id_ = reply.session_id;
  session_epoch_ = reply.session_epoch;
  op_ = 0;
  leases_.clear();  // ghosts: no new reads
  registry_cursor_ = reply.cursor;
  registry_step_ = reply.step;
  if (!needs_resume_) {
    world_.expect(reply.step <= step_, "the registry knows a step that was never acknowledged");
  }
}

void SimConsumer::resume() {
  // Newest first: the recorded ones alone can be resumed, and one ahead of the cursor is acknowledged instead.
  for (auto saved = disk_.rbegin(); saved != disk_.rend(); ++saved) {
    if (*saved > registry_step_) continue;
    const std::int64_t cursor = *saved * spec_.quantum;
    if (*saved != registry_step_) {
      ErrorCode refused{};
      if (!numbered(ResumeRequest{next_op(), cursor, *saved}, &refused)) {
        if (refused == ErrorCode::kCursorConflict) continue;
        return;
      }
    }
    step_ = registry_step_ = *saved;
    registry_cursor_ = cursor;
    trained_.clear();
    for (std::int64_t p = 0; p < cursor; ++p) trained_.push_back(p);
    disk_.erase(disk_.upper_bound(*saved), disk_.end());
    needs_resume_ = false;
    return;
  }
}

void SimConsumer::beat() {
  HeartbeatRequest request{{session_id_, session_epoch_}, true, {}};
  for (const auto& [p, lease] : leases_) request.tokens.push_back(lease.token);
  const std::int64_t sent_us = world_.now_us;
  const auto answer = world_.call(request);
  if (!answer) return;
  if (!answer->ok()) return on_error(answer->error());
  for (auto& [p, lease] : leases_) {
    const auto renewed = (*answer)->renewed.find(lease.token);
    if (renewed != (*answer)->renewed.end()) lease.valid_until_us = sent_us + renewed->second * 1000 - kMarginUs;
  }
  for (const std::string& token : (*answer)->lost) {
    std::erase_if(leases_, [&](const auto& lease) { return lease.second.token == token; });
  }
}

void SimConsumer::acquire() {
  std::int64_t from = step_ * spec_.quantum;
  while (verified_.count(from) != 0 || leases_.count(from) != 0) ++from;
  if (from > registry_cursor_ + spec_.lookahead) return;
  const std::int64_t sent_us = world_.now_us;
  const auto answer = world_.call(AcquireRequest{{session_id_, session_epoch_}, from, world_.dice.between(1, 4), 0});
  if (!answer) return;
  if (!answer->ok()) return on_error(answer->error());
  at_end_ = registry_cursor_ >= usable();
  for (const GrantedLease& lease : (*answer)->leases) {
    const std::int64_t p = lease.source_index;
    world_.expect(lease.ref->generation == lease.generation, "V1: the ref is of another generation than the lease");
    leases_[p] = {lease.token, lease.generation, server_at(lease.ref->store_url),
                  sent_us + lease.ttl_ms * 1000 - kMarginUs};
  }
}

void SimConsumer::begin_read() {
  for (const auto& [p, lease] : leases_) {
    if (p < step_ * spec_.quantum || verified_.count(p) != 0) continue;
    if (world_.now_us >= lease.valid_until_us) {
      leases_.erase(p);  // L4: nothing read now may be used
      return;
    }
    reading_ = {p, lease};
    world_.begin_read(index_, {lease.server, p, lease.generation}, lease.valid_until_us);
    return;
  }
}

// Fault 19: what was read beyond the lease is thrown away, whatever it is.
void SimConsumer::end_read() {
  const auto [p, lease] = *reading_;
  reading_.reset();
  world_.end_read(index_);
  const auto held = leases_.find(p);
  const bool renewed = held != leases_.end() && held->second.token == lease.token;
  const std::int64_t valid_until_us = renewed ? held->second.valid_until_us : lease.valid_until_us;
  if (world_.now_us >= valid_until_us) {
    if (renewed) leases_.erase(p);
    return;
  }
  if (world_.exists({lease.server, p, lease.generation})) {
    verified_.insert(p);
    if (renewed && world_.dice.one_in(2)) {
      leases_.erase(p);
      numbered(AbandonRequest{next_op(), {lease.token}, "verified"});
    }
    return;
  }
  world_.expect(world_.incarnation[lease.server] > 1, "a leased object is not there, and no server died");
  leases_.erase(p);
  numbered(ReportLostRequest{next_op(), p, lease.generation, LossReason::kGone});
}

bool SimConsumer::train() {
  const std::int64_t begin = step_ * spec_.quantum;
  if (begin + spec_.quantum > world_.config().total()) return false;
  if (step_ > registry_step_ + 1) return false;  // at most one step ahead of the acknowledged one
  for (std::int64_t p = begin; p < begin + spec_.quantum; ++p) {
    if (verified_.count(p) == 0) return false;
  }
  for (std::int64_t p = begin; p < begin + spec_.quantum; ++p) {
    trained_.push_back(p);
    verified_.erase(p);
  }
  step_ += 1;
  return true;
}

// S1: checkpoint on disk, its row, then the acknowledgement.
void SimConsumer::save_and_acknowledge() {
  if (step_ % save_every_ == 0 && world_.dice.one_in(2)) {
    disk_.insert(step_);
    if (!numbered(CheckpointRequest{next_op(), step_, step_ * spec_.quantum, "file:///checkpoint"})) return;
  }
  const std::int64_t cursor = step_ * spec_.quantum;
  if (!numbered(AdvanceRequest{next_op(), registry_cursor_, cursor, step_, true})) return;
  registry_cursor_ = cursor;
  registry_step_ = step_;
  std::erase_if(leases_, [&](const auto& lease) { return lease.first < cursor; });
  at_end_ = registry_cursor_ >= usable();
}

void SimConsumer::finish() {
  disk_.insert(step_);
  if (!numbered(CheckpointRequest{next_op(), step_, registry_cursor_, "file:///final"})) return;
  if (numbered(CompleteConsumerRequest{next_op(), step_, registry_cursor_, false})) finished_ = true;
}

template <class R>
bool SimConsumer::numbered(R request, ErrorCode* refused) {
  for (int tries = 0; tries < 20; ++tries) {
    const auto answer = world_.call(request);
    if (!answer) continue;  // repeated unchanged
    if (answer->ok()) {
      op_ += 1;
      return true;
    }
    if (refused != nullptr) *refused = answer->error().code;
    on_error(answer->error());
    return false;
  }
  return false;
}

void SimConsumer::on_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kEpochFenced: session_id_.clear(); return;
    case ErrorCode::kConsumerCompleted: finished_ = true; return;  // complete_consumer was done and its answer lost
    case ErrorCode::kConsumerFailed:
    case ErrorCode::kSessionFenced: session_id_.clear(); return;
    case ErrorCode::kCursorConflict:
    case ErrorCode::kDuplicateConsumer:
    case ErrorCode::kOutOfWindow: return;
    default:
      world_.expect(false, "consumer " + spec_.consumer_id + " was told " + std::string(to_string(error.code)) + ": " +
                               error.message);
  }
}

}  // namespace levada::fanout::sim
