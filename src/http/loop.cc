#include "http/loop.h"

#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "base/log.h"

namespace levada::http {

void run_guarded(const Loop::Job& job) {
  try {
    job();
  } catch (const std::exception& error) {
    LEVADA_LOG_ERROR("http: a job threw: ", error.what());
  } catch (...) {
    LEVADA_LOG_ERROR("http: a job threw something that is no exception");
  }
}

Loop::Loop() : io_(1), keep_running_(io_.get_executor()), delayed_timer_(io_) {}

void Loop::wake_locked() {
  if (awake_) return;
  awake_ = true;
  boost::asio::post(io_, [this] { turn(); });
}

void Loop::post(Job job) {
  std::lock_guard lock(mutex_);
  if (finished_) return;
  jobs_.push_back(std::move(job));
  wake_locked();
}

void Loop::post_after(std::chrono::milliseconds delay, Job job) {
  const auto due = std::chrono::steady_clock::now() + delay;
  post([this, due, job = std::move(job)]() mutable {
    delayed_.emplace(due, std::move(job));
    arm_delayed_timer();
  });
}

void Loop::mark(std::shared_ptr<TurnTaker> taker) {
  std::lock_guard lock(mutex_);
  if (finished_) return;
  marked_.push_back(std::move(taker));
  wake_locked();
}

void Loop::turn() {
  {
    std::lock_guard lock(mutex_);
    running_jobs_.swap(jobs_);
  }
  for (const Job& job : running_jobs_) run_guarded(job);
  running_jobs_.clear();
  {
    // Taken only now: what the jobs wrote goes out in this same turn.
    std::lock_guard lock(mutex_);
    running_marked_.swap(marked_);
    awake_ = false;
    if (!jobs_.empty()) wake_locked();
  }
  for (const std::shared_ptr<TurnTaker>& taker : running_marked_) taker->on_turn();
  running_marked_.clear();
}

void Loop::arm_delayed_timer() {
  if (delayed_.empty()) return;
  delayed_timer_.expires_at(delayed_.begin()->first);
  delayed_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) run_due_jobs();
  });
}

void Loop::run_due_jobs() {
  const auto now = std::chrono::steady_clock::now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const Job job = std::move(delayed_.extract(delayed_.begin()).mapped());
    run_guarded(job);
  }
  arm_delayed_timer();
}

void Loop::run() { io_.run(); }

void Loop::finish() {
  std::vector<Job> jobs;
  std::vector<std::shared_ptr<TurnTaker>> marked;
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    jobs.swap(jobs_);
    marked.swap(marked_);
  }
  delayed_.clear();
  // Completions of what was cancelled hold connections, which hold this Loop: they must run to be let go.
  io_.restart();
  io_.poll();
}

}  // namespace levada::http
