// What: CallSpec, one HTTP call after parsing: everything needed to run it and to phrase its answer.
// Owner: made on an intake thread, moved to the I/O thread.
// Thread: one at a time.
// Invariant: members is not empty; each member's request is complete but for its id, which LiveCalls gives.
// rids are the names clients abort by; empty: the client gave none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/request.h"
#include "reply/parser.h"
#include "serve/grammar_guide.h"
#include "serve/openai_compat.h"
#include "text/tokenizer.h"

namespace levada::serve {

enum class Dialect : std::uint8_t { kChat, kCompletion, kGenerate, kEmbedding, kResponses, kMessages };

// The dialects whose events say by name what they are, an error too, and whose streams end without [DONE].
constexpr bool has_named_events(Dialect dialect) {
  return dialect == Dialect::kResponses || dialect == Dialect::kMessages;
}

struct Member {
  core::Request request;
  std::string rid;         // what /abort_request names; unique among live members
  Status fault = {};       // of a capture's prompt: it fails alone
  std::string group = {};  // names all choices of a prompt; empty: none but `rid`
};

struct UsageForm {
  std::optional<ReasoningTokens> reasoning = {};  // how the tokens of reasoning are known; none: they aren't
  OpenAiCompat compat = OpenAiCompat::kNone;
};

struct CallSpec {
  Dialect dialect = Dialect::kGenerate;
  std::string id;        // "chatcmpl-…", "cmpl-…"; /generate answers each member with its rid instead
  std::string model;     // echoed in the answer
  std::string repeated;  // of /v1/responses: what the answer says of its request, as fields of a JSON object
  std::vector<Member> members;
  std::size_t choices = 1;                     // members [k * choices, (k + 1) * choices) answer the same prompt
  std::size_t best = 0;                        // of completions: so many of each prompt's choices are told; 0: all
  bool echo = false;                           // the answer's text begins with the prompt
  bool only_ranked = false;                    // log probabilities serve to find the best, and aren't told
  bool token_texts = false;                    // of /generate: log probabilities name tokens by their text, too
  std::int32_t hidden_size = 1;                // of the model
  std::int32_t dimensions = 0;                 // of an embedding; 0: all
  bool base64 = false;                         // of an embedding: its floats' bytes
  std::shared_ptr<const reply::Form> form;     // of a chat's answers; null: all of their text is content
  std::string call_ids;                        // what the ids of their tool calls begin with
  UsageForm usage;                             // of OpenAI's dialects
  const text::Tokenizer* tokenizer = nullptr;  // null: tokens have no text
  bool batch = false;                          // answer with a list even if there is one member (/generate)
  bool stream = false;
  bool include_usage = false;
  bool wants_ids = false;  // the last Emission carries the answer's token ids
  bool counted = true;     // false for the server's own probes: they stay out of the metrics
};

}  // namespace levada::serve
