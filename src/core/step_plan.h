// What: StepPlan, one forward step over a mixed batch with every decision already taken, and StepResult, its answer.
// Owner: built by the scheduler, moved to the executor; the result is moved back. Nobody shares either.
// Thread: crosses from the scheduler's thread to the worker's and back, never both at once.
// Invariant: executors are stateless between steps apart from the KV bytes and the tokens sampled by the step before;
// sum of slice counts == tokens.size() == positions.size(); every page id is explicit; rows of a slice are consecutive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/capture.h"
#include "core/ids.h"
#include "core/logprobs.h"
#include "core/token_range.h"

namespace levada::core {

// The rows one request contributes. KV of tokens [0, range.first) is already in its pages; this step writes
// [range.first, range.end()). block_table entry p covers tokens [p * page_size, (p + 1) * page_size).
struct PlanSlice {
  TokenRange range;
  std::int32_t first_row = 0;          // in StepPlan::tokens
  std::int32_t block_table_first = 0;  // in StepPlan::block_tables
  std::int32_t block_table_pages = 0;  // >= pages for range.end() tokens
  std::int32_t sample_row = -1;        // index into StepPlan::samples, or -1: no token wanted (chunk not the last)
  // The slice's last so many rows hold drafts: guesses at what the rows before them would sample. Then each of the last
  // 1 + drafts rows has a sample of its own, in order from sample_row on. See accepted_drafts().
  std::int32_t drafts = 0;
  // After the last token that the samples give, the plan's draft proposes so many; 0: none are wanted. It runs a block of
  // 1 + propose rows, the first at the position of that token at the latest range.end(), and may overwrite their draft
  // planes: the block table covers range.end() + 1 + propose tokens. REQUIRES: sample_row >= 0, StepPlan::draft set.
  std::int32_t propose = 0;
  // The draft planes hold the plan's draft's numbers from this position on, up to range.first; before, they hold nothing
  // that it may read.
  std::int32_t draft_from = 0;
  // Of a slice without samples: the token behind its last row, of which an EAGLE-3 draft's numbers of that row are a function,
  // too; -1: unknown, and that row's draft planes are left alone. With samples it is what they give.
  Token next_token = -1;
};

// How to choose the token after the last row of a slice. Randomness is counter-based on (seed, position), so a request's
// tokens don't depend on its neighbours.
struct SampleRow {
  std::int32_t row = 0;       // row of StepPlan::tokens whose logits are used
  std::int32_t position = 0;  // position the sampled token will have
  float temperature = 1.0f, top_p = 1.0f, min_p = 0.0f;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  float frequency_penalty = 0.0f, presence_penalty = 0.0f, repetition_penalty = 1.0f;
  // Known history for penalties, in StepPlan::history: prompt, then output; empty when no penalty is asked.
  // With lookahead the newest token is not in it yet: it is the row's own input token, appended by the executor.
  std::int32_t history_first = 0, history_tokens = 0, history_prompt_tokens = 0;
  bool append_input_to_history = false;
  // Ids whose logit is set to -inf (min_new_tokens masks eos and stop ids), in StepPlan::banned.
  std::int32_t banned_first = 0, banned_count = 0;
  // Added to logits after the penalties, in StepPlan::bias_ids and bias_values; each id once.
  std::int32_t bias_first = 0, bias_count = 0;
  // First of the row's (vocabulary + 31) / 32 words in StepPlan::masks, -1: every id is allowed. Bit i % 32 of word i / 32
  // allows id i.
  std::int32_t mask_first = -1;
  // Alternatives wanted beside the chosen token's log probability; -1: not even that.
  std::int32_t top_logprobs = -1;
};

// How many drafts were right, drafts[i] being the guess at sampled[i]: the leading run. Then sampled[0 .. that many] are
// what plain decoding would have sampled, token for token: each row is sampled with the numbers of its own position. For a
// draft without probabilities this is rejection sampling (spec/dflash.md 3.2, "point mass"): it is accepted with its
// probability, else what comes is drawn from the rest.
constexpr std::int32_t accepted_drafts(std::span<const Token> sampled, std::span<const Token> drafts) {
  std::size_t run = 0;
  while (run < drafts.size() && run < sampled.size() && sampled[run] == drafts[run]) ++run;
  return static_cast<std::int32_t>(run);
}

constexpr std::int64_t mask_words(std::int64_t vocabulary) { return (vocabulary + 31) / 32; }

// A row of the prompt whose next token is known: how probable was it?
struct ScoreRow {
  std::int32_t row = 0;  // of StepPlan::tokens
  Token next = 0;
  std::int32_t top_logprobs = 0;
};

// Consecutive rows whose hidden states after the final norm go back in the StepResult.
struct HiddenRows {
  std::int32_t first_row = 0, count = 0;  // of StepPlan::tokens
};

// tokens[row] is not known yet: it is the token sampled by sample `previous_sample` of the plan submitted just before.
struct FutureToken {
  std::int32_t row = 0;
  std::int32_t previous_sample = 0;
};

struct StepPlan {
  StepId step{};
  // The draft whose planes every row of this step writes, and who proposes; kNoDraft: the planes are left alone. A DFlash
  // draft writes a row from the target's states alone, an EAGLE-3 draft once the next token is known, at the end of the step:
  // then rows of rejected drafts write nothing, and their slots hold nothing readable.
  DraftVersion draft = kNoDraft;
  std::vector<Token> tokens;
  std::vector<std::int32_t> positions;
  std::vector<PlanSlice> slices;
  std::vector<std::int32_t> block_tables;  // page indices, see PlanSlice
  std::vector<SampleRow> samples;
  std::vector<FutureToken> future_tokens;
  std::vector<Token> history;
  std::vector<Token> banned;
  std::vector<Token> bias_ids;
  std::vector<float> bias_values;
  std::vector<std::uint32_t> masks;
  std::vector<ScoreRow> scores;
  std::vector<HiddenRows> hidden;
  std::vector<PlanCapture> captures;
  std::vector<std::int32_t> capture_layers;
};

struct StepResult {
  StepId step{};
  // A failed step fails its requests, not the process; then sampled is empty.
  Status status;
  std::vector<Token> sampled;                  // one per StepPlan::samples
  std::vector<TokenLogprob> sampled_logprobs;  // one per StepPlan::samples, none if no sample asks
  std::vector<Token> proposed;                 // `propose` for each slice that asks, in the order of slices
  std::vector<TokenLogprob> scored;            // one per StepPlan::scores
  // One per StepPlan::hidden, its rows one after the other.
  std::vector<std::vector<float>> hidden;
  bool executor_lost = false;  // no later step can succeed either; `status` says why
};

}  // namespace levada::core
