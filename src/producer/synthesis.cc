#include "producer/synthesis.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

namespace levada::producer {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kMostFailures = 5;       // of one connection, in a row
constexpr std::size_t kLeastQuestionBytes = 8;  // "Hi!" asks nothing

Tokens tokens_of(const TokenizePrompt& tokenize, const std::string& question, Status& status) {
  Prompt prompt;
  prompt.where = "a question";
  prompt.kind = PromptKind::kMessages;
  prompt.messages =
      Json::array({{{"role", "user"}, {"content", question}}}).dump(-1, ' ', false, Json::error_handler_t::replace);
  Result<Tokens> tokens = tokenize(prompt);
  if (tokens.ok()) return std::move(tokens).value();
  status = tokens.status();
  return {};
}

// What every chat begins with: where the tokens of two chats that differ from their first letter on part.
Result<Tokens> chat_beginning(const TokenizePrompt& tokenize) {
  Status status;
  const Tokens a = tokens_of(tokenize, "Why", status), b = tokens_of(tokenize, "3", status);
  LEVADA_RETURN_IF_ERROR(status);
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (parted.first == a.begin()) return invalid_argument("the chat template begins with the user's words", "model");
  return Tokens(a.begin(), parted.first);
}

class Synthesis {
 public:
  Synthesis(const SynthesisRules& rules, const TokenizePrompt& tokenize, const ConnectWith& connect, Pause& pause,
            const std::function<void(const SynthesisReport&)>& on_progress)
      : rules_(rules), tokenize_(tokenize), connect_(connect), pause_(pause), on_progress_(on_progress) {}

  Result<SynthesisReport> run() {
    LEVADA_ASSIGN_OR_RETURN(beginning_, chat_beginning(tokenize_));
    const SystemClock clock;
    const std::int64_t begun = clock.now_us();
    {
      std::vector<Thread> workers;
      for (std::int64_t i = 0; i < rules_.connections; ++i) workers.emplace_back("levada-synth", [this] { work(); });
    }
    report_.seconds = static_cast<double>(clock.now_us() - begun) / 1e6;
    if (report_.answered == 0 && !last_failure_.ok()) return last_failure_;
    return report_;
  }

 private:
  void work() {
    const auto asking = connect_(true), answering = connect_(false);
    for (std::int64_t failures = 0; failures < kMostFailures && !pause_.stopped();) {
      const std::int64_t first = next_.fetch_add(rules_.batch);
      if (first >= rules_.questions) return;
      const std::int64_t count = std::min(rules_.batch, rules_.questions - first);
      const Status done = converse(*asking, *answering, first, count);
      failures = done.ok() ? 0 : failures + 1;
      if (!done.ok()) note_failure(done, count);
    }
  }

  Status converse(CaptureServer& asking, CaptureServer& answering, std::int64_t first, std::int64_t count) {
    Json questions{{"input_ids", Json::array()}, {"sampling_params", Json::array()}};
    for (std::int64_t i = first; i < first + count; ++i) {
      questions["input_ids"].push_back(beginning_);
      questions["sampling_params"].push_back({{"temperature", rules_.temperature},
                                              {"min_p", rules_.min_p},
                                              {"seed", rules_.seed + static_cast<std::uint64_t>(i)},
                                              {"max_new_tokens", rules_.max_question_tokens}});
    }
    LEVADA_ASSIGN_OR_RETURN(const Json asked, post(asking, questions));
    Json chats{{"input_ids", Json::array()}, {"sampling_params", Json::array()}};
    for (const Json& row : asked) {
      LEVADA_ASSIGN_OR_RETURN(const Tokens chat, chat_of(row));
      if (chat.empty()) continue;
      chats["input_ids"].push_back(chat);
      chats["sampling_params"].push_back({{"temperature", 0.0}, {"max_new_tokens", rules_.max_answer_tokens}});
    }
    Json answers = Json::array();
    if (!chats["input_ids"].empty()) {
      LEVADA_ASSIGN_OR_RETURN(answers, post(answering, chats));
    }
    note(asked, answers);
    return {};
  }

  // The chat that asks the row's question; empty for one that is left out.
  Result<Tokens> chat_of(const Json& row) {
    const std::string question = row["text"].get<std::string>();
    std::lock_guard lock(mutex_);  // of the tokenizer, too
    if (question.size() < kLeastQuestionBytes) {
      ++report_.too_short;
      return Tokens();
    }
    if (!seen_.insert(std::hash<std::string>{}(question)).second) {
      ++report_.repeated;
      return Tokens();
    }
    Status status;
    Tokens chat = tokens_of(tokenize_, question, status);
    LEVADA_RETURN_IF_ERROR(status);
    return chat;
  }

  Result<Json> post(CaptureServer& server, const Json& body) const {
    LEVADA_ASSIGN_OR_RETURN(const http::ClientResponse response,
                            server.post("/generate", body.dump(), rules_.timeout_us));
    if (response.status != 200)
      return unavailable("/generate answers " + std::to_string(response.status) + ": " + response.body.substr(0, 300));
    Json rows = Json::parse(response.body, nullptr, false);
    const bool whole = rows.is_array() && rows.size() == body["input_ids"].size() &&
                       std::all_of(rows.begin(), rows.end(), [](const Json& row) {
                         return row.is_object() && row.contains("text") && row["text"].is_string() &&
                                row.contains("output_ids") && row["output_ids"].is_array();
                       });
    if (!whole) return unavailable("/generate answers no list of texts with their output_ids");
    return rows;
  }

  void note(const Json& asked, const Json& answers) {
    std::lock_guard lock(mutex_);
    report_.asked += std::ssize(asked);
    report_.answered += std::ssize(answers);
    for (const Json& row : asked) report_.question_tokens += std::ssize(row["output_ids"]);
    for (const Json& row : answers) report_.answer_tokens += std::ssize(row["output_ids"]);
    if (on_progress_) on_progress_(report_);
  }

  void note_failure(const Status& failure, std::int64_t questions) {
    std::lock_guard lock(mutex_);
    report_.failed += questions;
    last_failure_ = failure;
    LEVADA_LOG_WARNING("synthesis: ", questions, " questions failed: ", failure.message());
  }

  const SynthesisRules& rules_;
  const TokenizePrompt& tokenize_;
  const ConnectWith& connect_;
  Pause& pause_;
  const std::function<void(const SynthesisReport&)>& on_progress_;
  Tokens beginning_;
  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;
  SynthesisReport report_;
  Status last_failure_;
  std::unordered_set<std::size_t> seen_;  // hashes of questions
};

}  // namespace

Result<SynthesisReport> synthesize(const SynthesisRules& rules, const TokenizePrompt& tokenize,
                                   const ConnectWith& connect, Pause& pause,
                                   const std::function<void(const SynthesisReport&)>& on_progress) {
  return Synthesis(rules, tokenize, connect, pause, on_progress).run();
}

}  // namespace levada::producer
