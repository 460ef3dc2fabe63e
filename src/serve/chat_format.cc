// Answers of /v1/chat/completions.
#include "serve/answer_format.h"
#include "serve/json_text.h"
#include "serve/openai_text.h"

namespace levada::serve {

namespace {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(const CallSpec& call, std::int64_t created_unix_s)
      : include_usage_(call.include_usage),
        whole_head_(openai_head(call, "chat.completion", created_unix_s)),
        event_head_("data: " + openai_head(call, "chat.completion.chunk", created_unix_s)),
        event_tail_(include_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n") {
    delta_head_ = event_head_ + "\"choices\":[{\"index\":0,\"delta\":{";
  }

  void append_opening(std::size_t, std::string& out) override {
    out +=
        delta_head_ + "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null" + event_tail_;
  }

  void append_events(std::size_t, const AnswerFold& fold, const core::OutputDelta& delta, std::string& out) override {
    if (!delta.text.empty()) {
      out += delta_head_;
      out += "\"content\":\"";
      append_json_escaped(out, delta.text);
      out += "\"},\"logprobs\":null,\"finish_reason\":null";
      out += event_tail_;
    }
    if (!fold.done()) return;
    out += delta_head_ + "},\"logprobs\":null,";
    append_openai_finish(fold.finish, out);
    out += event_tail_;
  }

  void append_closing(const std::vector<AnswerFold>& folds, std::string& out) override {
    if (!include_usage_) return;
    out += event_head_ + "\"choices\":[],\"usage\":";
    append_usage(folds, out);
    out += "}\n\n";
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::string out = whole_head_ + "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":";
    append_json_string(out, folds.front().text);
    out += "},\"logprobs\":null,";
    append_openai_finish(folds.front().finish, out);
    out += "}],\"usage\":";
    append_usage(folds, out);
    out += '}';
    return out;
  }

  bool answers_aborts() const override { return false; }

 private:
  bool include_usage_;
  std::string whole_head_, event_head_, event_tail_, delta_head_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(const CallSpec& call, std::int64_t created_unix_s) {
  return std::make_unique<ChatFormat>(call, created_unix_s);
}

}  // namespace levada::serve
