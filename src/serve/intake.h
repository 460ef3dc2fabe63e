// What: Intake, the threads that parse, render and tokenize request bodies, so that a long prompt never delays a
// stream.
// Owner: Api.
// Thread: submit() on the I/O thread; jobs run on an intake thread, what they return on the I/O thread.
// Invariant: jobs of one lane keep their order; a body above kLongBodyBytes waits in its own lane, and so does one whose
// reading may compile a grammar, so that small requests don't queue behind them; at most kMaxWaiting jobs wait per lane and
// kMaxWaitingBytes of bodies in all; a job that throws is logged and dropped, and its Responder with it, which answers 500.
// Shutdown: the destructor waits until every job taken before has run; what they return runs only while the server
// does, so the server must have stopped by then.
#pragma once

#include <functional>
#include <memory>

#include "base/mailbox.h"
#include "base/thread.h"
#include "http/server.h"

namespace simdjson::dom {
class parser;
}

namespace levada::serve {

class Intake {
 public:
  // Runs on an intake thread with that thread's parser; the function it returns (may be null) runs on the I/O thread.
  using Job = std::function<std::function<void()>(simdjson::dom::parser&)>;

  static constexpr std::size_t kLongBodyBytes = 64 << 10;
  static constexpr std::size_t kMaxWaiting = 4096;
  static constexpr std::size_t kMaxWaitingBytes = 256 << 20;

  explicit Intake(http::Server& server);
  ~Intake();

  // kResourceExhausted if the lane is full, or if bodies wait and this one would exceed the bytes that may.
  // `compiles`: it may take seconds.
  Status submit(std::size_t body_bytes, Job job, bool compiles = false);

 private:
  struct Entry {
    std::size_t body_bytes;
    Job job;
  };
  struct Lane {
    Mailbox<Entry> mailbox;
    std::size_t waiting = 0;  // I/O thread only
    Thread thread;
  };

  void run(Lane& lane);

  http::Server& server_;
  std::size_t waiting_bytes_ = 0;  // I/O thread only; counted until what the job returned has run
  Lane short_, long_, compiling_;
};

}  // namespace levada::serve
