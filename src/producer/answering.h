// What: the target answers raw prompts itself, greedily and with a bounded number of tokens; its answer is what a draft
// shall learn.
// Owner: the preparation at start.
// Thread: its caller's; one connection.
// Invariant: samples come out in the order of the prompts; every prompt is kept, or dropped and counted with its reason.
// Nothing here touches the registry: answers are made before the plan exists, for they are part of the samples' identity.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/pause.h"
#include "base/status.h"
#include "producer/capture_server.h"
#include "producer/prepared.h"
#include "producer/prompt_text.h"

namespace levada::producer {

struct AnswerRules {
  SampleBounds bounds;                    // max_supervised bounds an answer too
  std::int64_t max_samples = 0;           // stop when so many are kept; 0: every prompt
  std::int64_t batch = 8;                 // prompts of one request
  std::int64_t timeout_us = 600'000'000;  // of one request
  std::int64_t attempts = 5;              // of one request, a second apart at first, then twice as long each time
  std::function<void(std::int64_t kept, std::int64_t wanted)> on_progress = {};  // after each request
};

struct Preparation {
  std::vector<PreparedSample> samples;
  std::map<std::string, std::int64_t> dropped;  // reason -> prompts
  std::int64_t offered = 0;                     // prompts looked at: kept + dropped
};

// Makes samples of prompts, asking a server of `servers` (one after the other when one fails) for the answers that are
// missing. kUnavailable when no server answers after all attempts, kInvalidArgument when one says that a request is wrong,
// kAborted when `pause` was stopped. `tokenize` may be empty if every prompt has its tokens.
Result<Preparation> prepare_samples(const std::vector<Prompt>& prompts, const AnswerRules& rules,
                                    const TokenizePrompt& tokenize, std::vector<CaptureServer*> servers, Pause& pause);

}  // namespace levada::producer
