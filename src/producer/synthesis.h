// What: synthesize(), traffic that the target makes by itself: it writes users' questions from the bare beginning of a chat,
// then answers them, so that a server that samples its traffic learns what its own drafts will have to guess.
// Owner: a command; many connections, a thread each.
// Thread: the caller's, until the end; `on_progress` comes from the workers' threads, one at a time.
// Invariant: only answers are offered for sampling: the questions are asked with kNoCaptureHeader. A question that was asked
// before, or that is no question, is counted and left out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/pause.h"
#include "producer/capture_server.h"
#include "producer/prompt_text.h"

namespace levada::producer {

// A request that carries it (any value) is not sampled into captures.
inline constexpr const char* kNoCaptureHeader = "X-Levada-No-Capture";

struct SynthesisRules {
  std::int64_t questions = 1000;
  std::int64_t connections = 64;  // at a time
  std::int64_t batch = 8;         // questions of one request
  double temperature = 0.9, min_p = 0.05;
  std::int64_t max_question_tokens = 64, max_answer_tokens = 300;
  std::uint64_t seed = 42;
  std::int64_t timeout_us = 600'000'000;  // of one request
};

struct SynthesisReport {
  std::int64_t asked = 0, answered = 0, repeated = 0, too_short = 0, failed = 0;
  std::int64_t question_tokens = 0, answer_tokens = 0;
  double seconds = 0;
};

// Connections are made by `connect` without and with kNoCaptureHeader.
using ConnectWith = std::function<std::unique_ptr<CaptureServer>(bool no_capture)>;

// Until rules.questions were asked or `pause` was stopped. kUnavailable if every connection failed for good.
Result<SynthesisReport> synthesize(const SynthesisRules& rules, const TokenizePrompt& tokenize,
                                   const ConnectWith& connect, Pause& pause,
                                   const std::function<void(const SynthesisReport&)>& on_progress);

}  // namespace levada::producer
