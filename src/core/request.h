// What: Request, what serve hands to the scheduler, and OutputDelta, what comes back.
// Owner: the scheduler owns a Request from submit() to its last OutputDelta.
// Thread: built by serve, moved through the scheduler's mailbox; never shared.
// Invariant: prompt is not empty, every id lies in the vocabulary, prompt + 1 fits the context and an empty pool.
// The whole answer is the fold of its deltas (law 10); exactly one delta per request carries a finish.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/capture.h"
#include "core/ids.h"
#include "core/logprobs.h"
#include "core/sampling_params.h"
#include "core/token_guide.h"

namespace levada::core {

// Who may share cached prefixes (law 8): tagged fields, never a concatenation. Two requests share pages only if both
// fields are equal; absent and empty differ.
struct CacheNamespace {
  std::optional<std::string> extra_key;
  std::optional<std::string> cache_salt;
  bool operator==(const CacheNamespace&) const = default;
};

// How probable the tokens were.
struct LogprobRequest {
  std::int32_t top = 0;  // alternatives per token, at most kMaxTopLogprobs
  // Prompt tokens behind this index get theirs, too; none if it is the last one's or beyond.
  std::int32_t prompt_from = std::numeric_limits<std::int32_t>::max();
};

// Hidden states after the final norm.
enum class HiddenWish : std::uint8_t { kNone, kLastOfPrompt, kPrompt, kAll };

struct Request {
  RequestId id{};
  std::vector<Token> prompt;
  SamplingParams sampling;
  CacheNamespace cache_namespace;
  std::optional<CaptureRequest> capture;  // its hidden states are wanted, in the arena
  std::optional<LogprobRequest> logprobs;
  HiddenWish hidden = HiddenWish::kNone;
  std::shared_ptr<TokenGuide> guide;     // null: any token may come; of this request alone
  std::int32_t priority = 0;             // larger goes first where the server schedules by priority
  std::optional<RequestId> same_prompt;  // waits for that one's prompt, to start on its cached prefix
  std::int64_t arrival_us = 0;           // Clock time at the server's door
};

enum class FinishReason : std::uint8_t { kStop, kLength, kAbort, kError };

struct Finish {
  FinishReason reason = FinishReason::kStop;
  // What matched, for kStop: a stop token (eos included) or a stop string.
  std::variant<std::monostate, Token, std::string> matched;
  // Why, for kAbort and kError.
  Status status;
};

// What speculation gave an answer: tokens per step = 1 + accepted / steps.
struct SpeculationCount {
  std::int32_t steps = 0;     // decode steps, those without drafts included
  std::int32_t drafts = 0;    // verified
  std::int32_t accepted = 0;  // of them
};

// One step's news about one request. token_ids are the accepted tokens (the matched stop token included, as clients of
// SGLang expect in output_ids); text excludes what the stop rule cut and what is still held back.
struct OutputDelta {
  RequestId request{};
  std::vector<Token> token_ids;
  std::string text;  // always valid UTF-8
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;      // at first admission; 0 <= cached <= prompt
  std::int32_t completion_tokens = 0;  // cumulative
  SpeculationCount speculation;        // cumulative
  // If asked: of token_ids, one each; of the prompt tokens that follow those of the delta before; hidden states of the
  // rows that follow, one after the other.
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::vector<float> hidden;
  std::optional<Finish> finish;
};

// Receives deltas on the scheduler's thread, all of one step in one call; must not block.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_outputs(std::vector<OutputDelta> deltas) = 0;
};

}  // namespace levada::core
