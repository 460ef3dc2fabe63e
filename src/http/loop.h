// What: Loop, the I/O thread's turns: jobs from any thread, delayed jobs, and connections with something to send.
// Owner: shared by the Server and its connections, because a Responder held by another thread may outlive the Server.
// Thread: the public methods from any thread, run() on the I/O thread.
// Invariant: jobs run in the order of posting; all connections marked during a turn are served once at its end, so
// their writes go out together; after finish() everything posted is dropped unrun.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace levada::http {

// Something that has work at the end of a turn.
class TurnTaker {
 public:
  virtual ~TurnTaker() = default;
  virtual void on_turn() = 0;
};

class Loop {
 public:
  using Job = std::function<void()>;

  Loop();
  boost::asio::io_context& io() { return io_; }

  void post(Job job);
  void post_after(std::chrono::milliseconds delay, Job job);
  // on_turn() will be called once at the end of the present or next turn.
  void mark(std::shared_ptr<TurnTaker> taker);

  // Runs turns until stop().
  void run();
  // On the I/O thread: run() returns after the present handler.
  void stop() { io_.stop(); }
  // Drops all jobs; to be called once run() has returned or never will be called.
  void finish();

 private:
  void wake_locked();
  void turn();
  void arm_delayed_timer();
  void run_due_jobs();

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keep_running_;
  boost::asio::steady_timer delayed_timer_;
  std::multimap<std::chrono::steady_clock::time_point, Job> delayed_;  // I/O thread

  std::mutex mutex_;
  bool awake_ = false;  // a turn is posted
  bool finished_ = false;
  std::vector<Job> jobs_;
  std::vector<std::shared_ptr<TurnTaker>> marked_;

  std::vector<Job> running_jobs_;                           // I/O thread; kept for their capacity
  std::vector<std::shared_ptr<TurnTaker>> running_marked_;  // I/O thread
};

// Calls `job`; an exception from it is logged, not passed on: one bad handler must not end the server.
void run_guarded(const Loop::Job& job);

}  // namespace levada::http
