// What: the prompts file: what a user wants captured, as text to be answered first or as finished token sequences.
// Owner: values; read once at start.
// Thread: start-up only.
// Invariant: a file with one bad line gives nothing but a Status naming the line and the field: nothing is captured from a
// half-understood file. Explicit ids are valid and unique before any server hears of them.
// Format: one JSON object a line, or one JSON list of such objects; fields in docs/formats/prompts.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace levada::producer {

enum class PromptKind : std::uint8_t {
  kText,      // `text`: continued as it stands
  kMessages,  // `messages`, or `prompt` as a single user message: through the chat template
  kTokens,    // `input_ids` and `loss_mask`: answered elsewhere
};

struct Prompt {
  std::string where;    // "line 12" or "item 3", for messages to the user
  std::string task_id;  // explicit; empty: derived from the content
  PromptKind kind = PromptKind::kText;
  std::string text;      // kText: UTF-8
  std::string messages;  // kMessages: a JSON list whose last message is not the assistant's
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;  // 0 or 1, one per token
};

// `text`: the file's content.
Result<std::vector<Prompt>> parse_prompts(const std::string& text);

// kInvalidArgument naming the first prompt with a token that a target of this vocabulary does not have.
Status check_tokens(const std::vector<Prompt>& prompts, std::int64_t vocabulary);

// kNotFound, kPayloadTooLarge (1 GiB), or what parse_prompts and check_tokens say, with the file's name. `vocabulary` 0: not known.
Result<std::vector<Prompt>> read_prompts(const std::filesystem::path& file, std::int64_t vocabulary);

}  // namespace levada::producer
