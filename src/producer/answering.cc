#include "producer/answering.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/log.h"

namespace levada::producer {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kFirstWaitUs = 1'000'000;

// A prompt on its way to becoming a sample.
struct Candidate {
  const Prompt* prompt;
  Tokens tokens;                // of the question
  std::int64_t max_answer = 0;  // 0: it needs none
  std::vector<std::uint8_t> loss_mask;
};

std::int64_t room_for_answer(std::size_t question, const SampleBounds& bounds) {
  const std::int64_t room = bounds.max_length - static_cast<std::int64_t>(question);
  return bounds.max_supervised > 0 ? std::min(room, bounds.max_supervised) : room;
}

std::string answer_body(std::span<const Candidate* const> asked) {
  Json body{{"input_ids", Json::array()}, {"sampling_params", Json::array()}};
  for (const Candidate* candidate : asked) {
    body["input_ids"].push_back(candidate->tokens);
    body["sampling_params"].push_back({{"temperature", 0.0}, {"max_new_tokens", candidate->max_answer}});
  }
  return body.dump();
}

// The answers of a reply, one per question; a row that is no answer makes the whole reply unusable.
Result<std::vector<Tokens>> read_answers(const std::string& body, std::size_t asked) {
  const Json rows = Json::parse(body, nullptr, false);
  if (!rows.is_array() || rows.size() != asked) {
    return unavailable("/generate answers no list of " + std::to_string(asked) + " rows");
  }
  std::vector<Tokens> answers;
  for (const Json& row : rows) {
    const auto ids = row.is_object() ? row.find("output_ids") : row.end();
    if (!row.is_object() || ids == row.end() || !ids->is_array())
      return unavailable("/generate: a row has no output_ids");
    Tokens answer;
    for (const Json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
        return unavailable("/generate: output_ids holds no token ids");
      }
      answer.push_back(id.get<std::int32_t>());
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

class Answering {
 public:
  Answering(const AnswerRules& rules, const TokenizePrompt& tokenize, std::vector<CaptureServer*> servers, Pause& pause)
      : rules_(rules), tokenize_(tokenize), servers_(std::move(servers)), pause_(pause) {}

  Result<Preparation> run(const std::vector<Prompt>& prompts) {
    for (std::size_t next = 0; next < prompts.size() && missing() > 0;) {
      const auto left = static_cast<std::int64_t>(prompts.size() - next);
      const auto count = static_cast<std::size_t>(std::min({rules_.batch, missing(), left}));
      LEVADA_RETURN_IF_ERROR(take(std::span(prompts).subspan(next, count)));
      next += count;
      result_.offered += static_cast<std::int64_t>(count);
      if (rules_.on_progress) rules_.on_progress(std::ssize(result_.samples), wanted(prompts));
    }
    return std::move(result_);
  }

 private:
  std::int64_t wanted(const std::vector<Prompt>& prompts) const {
    return rules_.max_samples == 0 ? std::ssize(prompts) : std::min(rules_.max_samples, std::ssize(prompts));
  }
  std::int64_t missing() const {
    if (rules_.max_samples == 0) return INT64_MAX;
    return rules_.max_samples - static_cast<std::int64_t>(result_.samples.size());
  }

  Status take(std::span<const Prompt> prompts) {
    std::vector<Candidate> candidates;
    for (const Prompt& prompt : prompts) {
      LEVADA_ASSIGN_OR_RETURN(Candidate candidate, candidate_of(prompt));
      candidates.push_back(std::move(candidate));
    }
    std::vector<const Candidate*> asked;
    for (const Candidate& candidate : candidates) {
      if (candidate.max_answer > 0) asked.push_back(&candidate);
    }
    std::vector<Tokens> answers;
    if (!asked.empty()) {
      LEVADA_ASSIGN_OR_RETURN(answers, ask(asked));
    }
    std::size_t next_answer = 0;
    for (Candidate& candidate : candidates) {
      if (candidate.max_answer > 0) add_answer(candidate, answers[next_answer++]);
      keep_or_drop(candidate);
    }
    return {};
  }

  Result<Candidate> candidate_of(const Prompt& prompt) {
    Candidate candidate{&prompt};
    if (prompt.kind == PromptKind::kTokens) {
      candidate.tokens = prompt.input_ids;
      candidate.loss_mask = prompt.loss_mask;
      return candidate;
    }
    if (!tokenize_) return invalid_argument(prompt.where + ": raw prompts need the target's tokenizer", "tokenizer");
    LEVADA_ASSIGN_OR_RETURN(candidate.tokens, tokenize_(prompt));
    candidate.loss_mask.assign(candidate.tokens.size(), 0);
    // Two supervised tokens are the least a draft can learn from.
    const std::int64_t room = room_for_answer(candidate.tokens.size(), rules_.bounds);
    candidate.max_answer = candidate.tokens.empty() || room < 2 ? 0 : room;
    return candidate;
  }

  // Servers take turns; each failure passes the request on.
  Result<std::vector<Tokens>> ask(std::span<const Candidate* const> asked) {
    const std::string body = answer_body(asked);
    Status last = unavailable("there is no server to answer prompts");
    std::int64_t wait_us = kFirstWaitUs;
    for (std::int64_t attempt = 0; attempt < rules_.attempts && !servers_.empty(); ++attempt) {
      if (attempt > 0 && !pause_.wait_us(wait_us))
        return Status(StatusCode::kAborted, "stopped while prompts were answered");
      if (attempt > 0) wait_us *= 2;
      if (pause_.stopped()) return Status(StatusCode::kAborted, "stopped while prompts were answered");
      CaptureServer& server = *servers_[turn_++ % servers_.size()];
      const auto response = server.post("/generate", body, rules_.timeout_us);
      if (!response.ok()) {
        last = response.status();
      } else if (response->status == 200) {
        auto answers = read_answers(response->body, asked.size());
        if (answers.ok()) return answers;
        last = answers.status();
      } else {
        last = refusal(*response);
        const bool is_final = response->status >= 400 && response->status < 500 && response->status != 429;
        if (is_final) return Status(StatusCode::kInvalidArgument, last.message(), "prompts");
      }
      LEVADA_LOG_WARNING("answering prompts: attempt ", attempt + 1, " of ", rules_.attempts, ": ", last.message());
    }
    return last;
  }

  static Status refusal(const http::ClientResponse& response) {
    return unavailable("/generate answers " + std::to_string(response.status) + ": " + response.body.substr(0, 300));
  }

  void add_answer(Candidate& candidate, const Tokens& answer) {
    candidate.tokens.insert(candidate.tokens.end(), answer.begin(), answer.end());
    candidate.loss_mask.resize(candidate.tokens.size(), 1);
  }

  void keep_or_drop(Candidate& candidate) {
    const Prompt& prompt = *candidate.prompt;
    if (prompt.kind != PromptKind::kTokens && candidate.max_answer == 0) return drop(prompt, "no room for an answer");
    PreparedSample sample{prompt.task_id, std::move(candidate.tokens), std::move(candidate.loss_mask)};
    switch (trim(sample, rules_.bounds)) {
      case TrimVerdict::kKept: return result_.samples.push_back(std::move(sample));
      case TrimVerdict::kTooFewSupervised: return drop(prompt, "fewer than two supervised tokens");
      case TrimVerdict::kNoNeighbours: return drop(prompt, "no two neighbouring supervised tokens");
    }
  }

  void drop(const Prompt& prompt, const char* reason) {
    result_.dropped[reason] += 1;
    LEVADA_LOG_INFO("prompt of ", prompt.where, " is left out: ", reason);
  }

  const AnswerRules& rules_;
  const TokenizePrompt& tokenize_;
  std::vector<CaptureServer*> servers_;
  Pause& pause_;
  std::size_t turn_ = 0;
  Preparation result_;
};

}  // namespace

Result<Preparation> prepare_samples(const std::vector<Prompt>& prompts, const AnswerRules& rules,
                                    const TokenizePrompt& tokenize, std::vector<CaptureServer*> servers, Pause& pause) {
  return Answering(rules, tokenize, std::move(servers), pause).run(prompts);
}

}  // namespace levada::producer
