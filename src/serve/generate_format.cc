// Answers of /generate: text, output_ids and meta_info, cumulative in a stream.
#include <cstdio>

#include "serve/answer_format.h"
#include "serve/error.h"
#include "serve/json_text.h"
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

class GenerateFormat final : public AnswerFormat {
 public:
  explicit GenerateFormat(const CallSpec& call) : batch_(call.batch), streamed_(call.members.size()) {
    for (const Member& member : call.members) {
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
                  ",\"prompt_tokens\":%d,\"completion_tokens\":%d,\"cached_tokens\":%d,\"e2e_latency\":%.6f}",
                  fold.prompt_tokens, fold.completion_tokens, fold.cached_tokens,
                  static_cast<double>(fold.latency_us) * 1e-6);
    out += numbers;
  }

  bool batch_;
  std::vector<std::string> meta_heads_;
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
    case Dialect::kGenerate: break;
  }
  return make_generate_format(call);
}

}  // namespace levada::serve
