// What: Request, what serve hands to the scheduler, and OutputDelta, what comes back.
// Owner: the scheduler owns a Request from submit() to its last OutputDelta.
// Thread: built by serve, moved through the scheduler's mailbox; never shared.
// Invariant: prompt is not empty, every id lies in the vocabulary, prompt + 1 fits the context and an empty pool.
// The whole answer is the fold of its deltas (law 10); exactly one delta per request carries a finish.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/capture.h"
#include "core/ids.h"
#include "core/sampling_params.h"

namespace levada::core {

// Who may share cached prefixes (law 8): tagged fields, never a concatenation. Two requests share pages only if both
// fields are equal; absent and empty differ.
struct CacheNamespace {
  std::optional<std::string> extra_key;
  std::optional<std::string> cache_salt;
  bool operator==(const CacheNamespace&) const = default;
};

struct Request {
  RequestId id{};
  std::vector<Token> prompt;
  SamplingParams sampling;
  CacheNamespace cache_namespace;
  std::optional<CaptureRequest> capture;  // its hidden states are wanted
  std::int64_t arrival_us = 0;            // Clock time at the server's door
};

enum class FinishReason : std::uint8_t { kStop, kLength, kAbort, kError };

struct Finish {
  FinishReason reason = FinishReason::kStop;
  // What matched, for kStop: a stop token (eos included) or a stop string.
  std::variant<std::monostate, Token, std::string> matched;
  // Why, for kAbort and kError.
  Status status;
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
  std::optional<Finish> finish;
};

// Receives deltas on the scheduler's thread, all of one step in one call; must not block.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_outputs(std::vector<OutputDelta> deltas) = 0;
};

}  // namespace levada::core
