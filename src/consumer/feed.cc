#include "consumer/feed.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace levada::consumer {
namespace {

constexpr std::int64_t kShortestBeatUs = 10'000;

}  // namespace

Feed::Feed(Options options, const fanout::ConsumerSpec& spec, Session& session, SampleReader& reader,
           const Clock& clock, Pause& pause)
    : options_(options), spec_(spec), session_(session), reader_(reader), clock_(clock), pause_(pause) {}

Feed::~Feed() {
  stop();
  fetching_.join();
  heartbeat_.join();
}

void Feed::stop() {
  pause_.stop();
  { std::lock_guard lock(mutex_); }  // nobody is between looking at the pause and waiting
  changed_.notify_all();
}

Status Feed::begin(std::int64_t step, const std::string& uri) {
  const fanout::RegisterReply at = session_.registration();
  const std::int64_t cursor = step * spec_.quantum;
  // It may have been written just before a crash, untold; without its record nobody could come back to it.
  if (step > 0) LEVADA_RETURN_IF_ERROR(session_.checkpoint(step, cursor, uri));
  if (at.step > step) {
    LEVADA_LOG_INFO("the registry is at step ", at.step, ", the checkpoint at step ", step, ": going back to it");
    LEVADA_RETURN_IF_ERROR(session_.resume(cursor, step));
  } else if (at.step < step) {
    // The steps in between are in the checkpoint; only their acknowledgements are missing.
    LEVADA_RETURN_IF_ERROR(session_.advance(at.cursor, cursor, step));
  } else if (at.cursor != cursor) {
    return Status(StatusCode::kFailedPrecondition, "the registry has cursor " + std::to_string(at.cursor) +
                                                       " at step " + std::to_string(step) + ", this consumer " +
                                                       std::to_string(cursor));
  }
  std::lock_guard lock(mutex_);
  total_ = at.total_samples;
  cursor_ = next_out_ = next_in_ = cursor;
  step_ = step;
  is_training_ = true;
  return {};
}

void Feed::start_heartbeat() {
  heartbeat_ = Thread("heartbeat", [this] { run_heartbeat(); });
}

void Feed::start_fetching() {
  fetching_ = Thread("fetch", [this] { run_fetching(); });
}

void Feed::run_heartbeat() {
  while (pause_.wait_us(std::max(session_.registration().heartbeat_ms * 1000, kShortestBeatUs))) {
    const Status beaten = beat();
    if (beaten.ok() || beaten.code() == StatusCode::kUnavailable) continue;
    fail_with(beaten);
    return;
  }
}

void Feed::run_fetching() {
  while (!pause_.stopped()) {
    switch (fetch_step(options_.acquire_wait_ms)) {
      case Fetch::kFetched: break;
      case Fetch::kWaiting: break;
      case Fetch::kEnded:  // until confirm() goes back to an earlier position
      case Fetch::kFull: {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return room_locked() > 0 || pause_.stopped() || !failure_.ok(); });
        break;
      }
      case Fetch::kFailed: return;
    }
  }
}

std::int64_t Feed::room_locked() const { return std::min(cursor_ + spec_.max_outstanding, usable_end()) - next_in_; }

Feed::Fetch Feed::fetch_step(std::int64_t wait_ms) {
  std::int64_t from = 0, room = 0;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return Fetch::kFailed;
    if (next_in_ >= usable_end()) return Fetch::kEnded;
    from = next_in_;
    room = room_locked();
  }
  if (room <= 0) return Fetch::kFull;
  std::int64_t sent_us = 0;
  const auto reply = session_.acquire(from, std::min(room, spec_.quantum), wait_ms, sent_us);
  if (!reply.ok()) return fail_with(reply.status());
  Fetch outcome = Fetch::kWaiting;
  std::deque<std::int64_t> skipped(reply->skipped.begin(), reply->skipped.end());
  if (!skipped.empty()) outcome = Fetch::kFetched;
  pass_over(skipped);
  for (const fanout::GrantedLease& lease : reply->leases) {
    if (!take(lease, sent_us, outcome)) break;
    pass_over(skipped);
  }
  return outcome;
}

void Feed::pass_over(std::deque<std::int64_t>& skipped) {
  std::unique_lock lock(mutex_);
  for (; !skipped.empty() && skipped.front() == next_in_; skipped.pop_front()) {
    LEVADA_LOG_WARNING("position ", next_in_, " can't be captured and is skipped");
    samples_.push_back(std::make_unique<ReadSample>(reader_.stand_in(next_in_)));
    next_in_ += 1;
    counts_.skipped += 1;
  }
  lock.unlock();
  changed_.notify_all();
}

bool Feed::take(const fanout::GrantedLease& lease, std::int64_t sent_us, Fetch& outcome) {
  keep_lease(lease, sent_us);
  const std::int64_t since_us = clock_.now_us();
  auto read = reader_.read(lease, [&] { return is_lease_valid(lease.source_index); });
  const std::int64_t read_us = clock_.now_us() - since_us;
  if (!read.ok()) {
    outcome = fail_with(read.status());
    return false;
  }
  if (auto* sample = std::get_if<ReadSample>(&*read)) {
    const bool is_copy = sample->is_copy;
    const bool is_kept = keep_sample(std::move(*sample), lease, read_us);
    if (is_kept) outcome = Fetch::kFetched;
    if (is_kept && !is_copy) return true;  // its memory is the store's: the lease keeps it from going under a slow step
    drop_lease(lease.source_index);
    const Status released = session_.abandon({lease.token}, is_kept ? "verified" : "fetched again");
    if (!released.ok()) outcome = fail_with(released);
    return is_kept && released.ok();
  }
  drop_lease(lease.source_index);
  if (const auto* lost = std::get_if<SampleReader::Lost>(&*read)) {
    LEVADA_LOG_WARNING("position ", lease.source_index, " generation ", lease.generation, " is lost (",
                       to_string(lost->reason), "): ", lost->what);
    const Status told = session_.report_lost(lease.source_index, lease.generation, lost->reason);
    if (!told.ok()) outcome = fail_with(told);
    std::lock_guard lock(mutex_);
    counts_.reported_lost += 1;
  } else {
    std::lock_guard lock(mutex_);
    counts_.expired_reads += 1;
  }
  return false;
}

// false if confirm() has gone back to an earlier position meanwhile.
bool Feed::keep_sample(ReadSample sample, const fanout::GrantedLease& lease, std::int64_t read_us) {
  {
    std::lock_guard lock(mutex_);
    LEVADA_CHECK(sample.position >= next_in_, "samples are fetched in the plan's order");
    if (sample.position > next_in_) return false;
    counts_.acquired += 1;
    counts_.in_place += sample.in_place;
    counts_.ready_at_request += lease.ready_at_request;
    note_read_time_locked(read_us);
    samples_.push_back(std::make_unique<ReadSample>(std::move(sample)));
    next_in_ += 1;
  }
  changed_.notify_all();
  return true;
}

void Feed::keep_lease(const fanout::GrantedLease& lease, std::int64_t sent_us) {
  std::lock_guard lock(mutex_);
  leases_[lease.source_index] = {lease.token, session_.epoch(),
                                 sent_us + lease.ttl_ms * 1000 - options_.read_margin_us};
}

void Feed::drop_lease(std::int64_t position) {
  std::lock_guard lock(mutex_);
  leases_.erase(position);
}

bool Feed::is_lease_valid(std::int64_t position) const {
  std::lock_guard lock(mutex_);
  const auto held = leases_.find(position);
  return held != leases_.end() && clock_.now_us() <= held->second.deadline_us;
}

Status Feed::beat() {
  std::vector<std::string> tokens;
  bool is_ready = false;
  const std::int64_t epoch = session_.epoch();
  {
    std::lock_guard lock(mutex_);
    is_ready = is_training_;
    for (const auto& [position, held] : leases_) {
      if (held.epoch == epoch) tokens.push_back(held.token);
    }
  }
  std::int64_t sent_us = 0;
  LEVADA_ASSIGN_OR_RETURN(const fanout::HeartbeatReply reply, session_.heartbeat(is_ready, tokens, sent_us));
  const std::set<std::string> lost(reply.lost.begin(), reply.lost.end());
  std::lock_guard lock(mutex_);
  for (auto held = leases_.begin(); held != leases_.end();) {
    const auto renewed = reply.renewed.find(held->second.token);
    if (renewed != reply.renewed.end()) {
      held->second.deadline_us = sent_us + renewed->second * 1000 - options_.read_margin_us;
    }
    held = lost.count(held->second.token) != 0 ? leases_.erase(held) : std::next(held);
  }
  return {};
}

Feed::Fetch Feed::fail_with(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = status;
  }
  changed_.notify_all();
  return Fetch::kFailed;
}

Result<std::vector<const ReadSample*>> Feed::next(std::int64_t count) {
  LEVADA_CHECK(count == spec_.quantum, "samples are handed out a whole step at a time");
  const std::int64_t since_us = clock_.now_us();
  std::unique_lock lock(mutex_);
  LEVADA_CHECK(next_out_ == cursor_, "the step before was acknowledged");
  if (next_out_ + count > usable_end()) return std::vector<const ReadSample*>();
  const auto is_there = [&] { return next_in_ >= next_out_ + count || !failure_.ok() || pause_.stopped(); };
  const bool came = changed_.wait_for(lock, std::chrono::microseconds(options_.idle_us), is_there);
  counts_.waited_us += clock_.now_us() - since_us;
  if (next_in_ < next_out_ + count) {
    if (!failure_.ok()) return failure_;
    if (pause_.stopped()) return Status(StatusCode::kAborted, "stopped");
    if (!came) {
      return unavailable("no sample came for " + std::to_string(options_.idle_us / 1'000'000) + " s at position " +
                         std::to_string(next_in_));
    }
  }
  std::vector<const ReadSample*> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(samples_[static_cast<std::size_t>(i)].get());
  next_out_ += count;
  return out;
}

Result<bool> Feed::confirm() {
  std::vector<const ReadSample*> used;
  {
    std::lock_guard lock(mutex_);
    for (std::int64_t i = 0; i < next_out_ - cursor_; ++i) used.push_back(samples_[static_cast<std::size_t>(i)].get());
  }
  LEVADA_ASSIGN_OR_RETURN(const std::vector<bool> matches, reader_.verify(used));
  for (std::size_t i = 0; i < used.size(); ++i) {
    const ReadSample& sample = *used[i];
    if (sample.is_copy || sample.holders.empty()) continue;
    // In this order: as long as the view stands and the lease holds, the bytes that were measured are those that were used.
    if (matches[i] && sample.still_there() && is_lease_valid(sample.position)) continue;
    const std::int64_t position = sample.position, generation = sample.generation;
    LEVADA_RETURN_IF_ERROR(go_back(position, matches[i] ? "its lease or its object ended" : "its bytes are others"));
    if (!matches[i]) LEVADA_RETURN_IF_ERROR(session_.report_lost(position, generation, fanout::LossReason::kBadBytes));
    return false;
  }
  return true;
}

Status Feed::go_back(std::int64_t position, const std::string& why) {
  LEVADA_LOG_WARNING("position ", position, " was used in the store's memory, and ", why,
                     ": its step is given up and its samples are fetched again");
  std::vector<std::string> tokens;
  std::deque<std::unique_ptr<ReadSample>> dropped;
  {
    std::lock_guard lock(mutex_);
    for (auto held = leases_.lower_bound(position); held != leases_.end(); held = leases_.erase(held))
      tokens.push_back(held->second.token);
    for (; next_in_ > position; --next_in_) {
      dropped.push_back(std::move(samples_.back()));
      samples_.pop_back();
    }
    next_out_ = cursor_;
    counts_.gone_back += static_cast<std::int64_t>(dropped.size());
  }
  changed_.notify_all();
  return session_.abandon(tokens, "fetched again");
}

Status Feed::checkpointed(std::int64_t step, const std::string& uri) {
  return session_.checkpoint(step, step * spec_.quantum, uri);
}

Status Feed::stepped(std::int64_t step) {
  std::int64_t old_cursor = 0, new_cursor = 0;
  {
    std::lock_guard lock(mutex_);
    LEVADA_CHECK(step == step_ + 1 && next_out_ == cursor_ + spec_.quantum, "each step is acknowledged once, in order");
    old_cursor = cursor_;
    new_cursor = next_out_;
  }
  LEVADA_RETURN_IF_ERROR(session_.advance(old_cursor, new_cursor, step));
  {
    std::lock_guard lock(mutex_);
    cursor_ = new_cursor;
    step_ = step;
    samples_.erase(samples_.begin(), samples_.begin() + spec_.quantum);
    leases_.erase(leases_.begin(), leases_.lower_bound(new_cursor));
  }
  changed_.notify_all();
  return {};
}

Result<std::int64_t> Feed::complete(bool allow_partial) {
  std::int64_t step = 0, cursor = 0;
  {
    std::lock_guard lock(mutex_);
    step = step_;
    cursor = cursor_;
  }
  LEVADA_ASSIGN_OR_RETURN(const fanout::CompleteReply reply, session_.complete(step, cursor, allow_partial));
  return reply.skipped_tail;
}

std::int64_t Feed::cursor() const {
  std::lock_guard lock(mutex_);
  return cursor_;
}

void Feed::note_read_time_locked(std::int64_t read_us) {
  if (read_times_us_.size() < kReadTimes) {
    read_times_us_.push_back(read_us);
  } else {
    read_times_us_[static_cast<std::size_t>(counts_.acquired) % kReadTimes] = read_us;
  }
}

Feed::Counts Feed::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts = counts_;
  std::vector<std::int64_t> times = read_times_us_;
  if (times.empty()) return counts;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  counts.read_us = *middle;
  return counts;
}

}  // namespace levada::consumer
