// What: ScriptedServer, the whole serving path (HTTP, intake, scheduler, answers) around a model that computes nothing: its
// tokens come from a script.
// Owner: benches and cross-room tests.
// Thread: start() and the destructor the caller's; the server has its own, and the script runs on them.
// Invariant: a step ends no sooner than the I/O thread has taken the news of the one before, so each step's events leave by
// themselves. Nothing is live when it is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"
#include "bench/cpu_clock.h"
#include "sched/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace levada::bench {

class ScriptedServer {
 public:
  // The token at a position of the context, drawn with the request's seed.
  using Script = std::function<text::Token(std::uint64_t seed, std::int32_t position)>;

  struct Setup {
    const text::Tokenizer& tokenizer;  // with an end-of-text token; outlives the server, as does the template
    const text::ChatTemplate& chat_template;
    Script script;
    sched::Options sched = {};
    std::int32_t context_length_tokens = 4096;
  };

  // kUnavailable if no loopback port can be had.
  static Result<std::unique_ptr<ScriptedServer>> start(const Setup& setup);
  ~ScriptedServer();

  std::uint16_t port() const;
  const CpuClock& io_clock() const;
  // Of the scheduler's bookkeeping; waits for its thread.
  Status audit();

 private:
  struct Impl;
  explicit ScriptedServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::bench
