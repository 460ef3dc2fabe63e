// Answers of /generate: text, output_ids and meta_info, cumulative in a stream.
#include <cstdio>

#include "serve/answer_format.h"
#include "serve/error.h"
#include "serve/json_text.h"
#include "serve/logprob_json.h"
#include "serve/openai_text.h"

namespace levada::serve {

namespace {

void append_finish(const AnswerFold& fold, std::string& out) {
  if (!fold.finish) {
    out += "null";
    return;
  }
  switch (fold.finish->reason) {
    case core::FinishReason::kStop:
      out += "{\"type\":\"stop\",\"matched\":";
      append_matched(*fold.finish, out);
      break;
    case core::FinishReason::kLength:
      out += "{\"type\":\"length\",\"length\":" + std::to_string(fold.completion_tokens);
      break;
    case core::FinishReason::kAbort:
    case core::FinishReason::kError:  // never phrased here: the Call turns it into an error
      out += "{\"type\":\"abort\",\"message\":";
      append_json_string(out, fold.finish->status.message());
      out += ",\"status_code\":" + std::to_string(http_status(fold.finish->status));
      break;
  }
  out += '}';
}

// SGLang's names. spec_accept_length counts the token that every step gives, so it is 1 where no draft was right.
void append_speculation(const core::SpeculationCount& count, std::string& out) {
  if (count.steps == 0) return;
  const double steps = count.steps, drafts = count.drafts, accepted = count.accepted;
  char numbers[224];
  std::snprintf(numbers, sizeof numbers,
                ",\"spec_verify_ct\":%d,\"spec_draft_token_num\":%d,\"spec_accepted_drafts\":%d,"
                "\"spec_accept_length\":%.4f,\"spec_accept_rate\":%.4f",
                count.steps, count.drafts, count.accepted, 1 + accepted / steps, drafts > 0 ? accepted / drafts : 0.0);
  out += numbers;
}

// The written log probabilities of one member, cumulative.
class LogprobText {
 public:
  LogprobText(const CallSpec& call, const core::Request& request)
      : tokenizer_(call.tokenizer), texts_(call.token_texts), wanted_(request.logprobs.has_value()) {
    if (!wanted_) return;
    top_ = request.logprobs->top;
    // The first one has none: nothing precedes what was asked for.
    const auto first = static_cast<std::size_t>(request.logprobs->prompt_from);
    if (first < request.prompt.size()) add_unknown(request.prompt[first]);
  }

  void add(std::span<const core::TokenLogprob> prompt, std::span<const core::TokenLogprob> output) {
    for (const core::TokenLogprob& logprob : prompt) add(logprob, input_, input_top_);
    for (const core::TokenLogprob& logprob : output) add(logprob, output_, output_top_);
  }

  void append(std::string& out) const {
    if (!wanted_) return;
    append_list("input_token_logprobs", input_, out);
    append_list("output_token_logprobs", output_, out);
    if (top_ == 0) return;
    append_list("input_top_logprobs", input_top_, out);
    append_list("output_top_logprobs", output_top_, out);
  }

 private:
  static void append_list(const char* name, const std::string& items, std::string& out) {
    out += ",\"";
    out += name;
    out += "\":[";
    out += items;
    out += ']';
  }

  void add_unknown(core::Token token) {
    append_triple(tokenizer_, std::nullopt, token, texts_, input_);
    input_top_ += "null";
  }

  void add(const core::TokenLogprob& logprob, std::string& tokens, std::string& tops) const {
    if (!tokens.empty()) tokens += ',';
    append_triple(tokenizer_, logprob.logprob, logprob.token, texts_, tokens);
    if (top_ == 0) return;
    tops += tops.empty() ? "[" : ",[";
    for (std::size_t i = 0; i < logprob.top.size(); ++i) {
      if (i > 0) tops += ',';
      append_triple(tokenizer_, logprob.top[i].logprob, logprob.top[i].token, texts_, tops);
    }
    tops += ']';
  }

  const text::Tokenizer* tokenizer_;
  bool texts_, wanted_;
  std::int32_t top_ = 0;
  std::string input_, input_top_, output_, output_top_;
};

// SGLang's shape: first a list of the prompt's rows, then one row for every token but the last.
void append_hidden(const AnswerFold& fold, std::int64_t hidden_size, std::string& out) {
  const auto rows = static_cast<std::int64_t>(fold.hidden.size()) / hidden_size;
  out += ",\"hidden_states\":[[";
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row == fold.prompt_tokens) out += "],";
    if (row > 0 && row != fold.prompt_tokens) out += ',';
    out += '[';
    for (std::int64_t i = 0; i < hidden_size; ++i) {
      if (i > 0) out += ',';
      append_float(fold.hidden[static_cast<std::size_t>(row * hidden_size + i)], out);
    }
    out += ']';
  }
  out += rows > fold.prompt_tokens ? "]" : "]]";
}

class GenerateFormat final : public AnswerFormat {
 public:
  explicit GenerateFormat(const CallSpec& call)
      : batch_(call.batch), hidden_size_(call.hidden_size), streamed_(call.members.size()) {
    for (const Member& member : call.members) {
      logprobs_.emplace_back(call, member.request);
      hidden_.push_back(member.request.hidden != core::HiddenWish::kNone);
      meta_heads_.push_back("],\"meta_info\":{\"id\":");
      append_json_string(meta_heads_.back(), member.rid);
      meta_heads_.back() += ",\"weight_version\":\"default\",\"finish_reason\":";
    }
  }

  void append_opening(std::size_t, std::string&) override {}

  // Every delta gives an event, even one without text: clients measure tokens by meta_info.completion_tokens.
  void append_events(std::size_t member, const AnswerFold& fold, const core::OutputDelta& delta,
                     std::string& out) override {
    Streamed& streamed = streamed_[member];
    append_json_escaped(streamed.text, delta.text);
    append_json_ids(streamed.ids, delta.token_ids);
    logprobs_[member].add(delta.prompt_logprobs, delta.logprobs);
    out += "data: {";
    if (batch_) out += "\"index\":" + std::to_string(member) + ",";
    append_answer(member, fold, streamed, out);
    out += "}\n\n";
  }

  void append_closing(const std::vector<AnswerFold>&, std::string&) override {}

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::string out = batch_ ? "[" : "";
    for (std::size_t member = 0; member < folds.size(); ++member) {
      Streamed whole;
      append_json_escaped(whole.text, folds[member].text);
      append_json_ids(whole.ids, folds[member].token_ids);
      out += member == 0 ? "{" : ",{";
      logprobs_[member].add(folds[member].prompt_logprobs, folds[member].logprobs);
      append_answer(member, folds[member], whole, out);
      out += '}';
    }
    if (batch_) out += ']';
    return out;
  }

  bool answers_aborts() const override { return true; }

 private:
  // The cumulative parts in their written form, so that each event only copies them.
  struct Streamed {
    std::string text, ids;
  };

  void append_answer(std::size_t member, const AnswerFold& fold, const Streamed& parts, std::string& out) const {
    out += "\"text\":\"";
    out += parts.text;
    out += "\",\"output_ids\":[";
    out += parts.ids;
    out += meta_heads_[member];
    append_finish(fold, out);
    char numbers[160];
    std::snprintf(numbers, sizeof numbers,
                  ",\"prompt_tokens\":%d,\"completion_tokens\":%d,\"cached_tokens\":%d,\"e2e_latency\":%.6f",
                  fold.prompt_tokens, fold.completion_tokens, fold.cached_tokens,
                  static_cast<double>(fold.latency_us) * 1e-6);
    out += numbers;
    append_speculation(fold.speculation, out);
    logprobs_[member].append(out);
    if (hidden_[member] && fold.done()) append_hidden(fold, hidden_size_, out);
    out += '}';
  }

  bool batch_;
  std::int64_t hidden_size_;
  std::vector<std::string> meta_heads_;
  std::vector<LogprobText> logprobs_;
  std::vector<bool> hidden_;
  std::vector<Streamed> streamed_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_generate_format(const CallSpec& call) {
  return std::make_unique<GenerateFormat>(call);
}

std::unique_ptr<AnswerFormat> make_format(const CallSpec& call, std::int64_t created_unix_s) {
  switch (call.dialect) {
    case Dialect::kChat: return make_chat_format(call, created_unix_s);
    case Dialect::kCompletion: return make_completion_format(call, created_unix_s);
    case Dialect::kResponses: return make_responses_format(call, created_unix_s);
    case Dialect::kMessages: return make_messages_format(call);
    case Dialect::kEmbedding: return make_embedding_format(call);
    case Dialect::kGenerate: break;
  }
  return make_generate_format(call);
}

}  // namespace levada::serve
