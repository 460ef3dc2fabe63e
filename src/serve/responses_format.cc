// Answers of /v1/responses.
#include "serve/answer_format.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

std::string usage(const AnswerFold& fold) {
  return "{\"input_tokens\":" + std::to_string(fold.prompt_tokens) +
         ",\"input_tokens_details\":{\"cached_tokens\":" + std::to_string(fold.cached_tokens) +
         "},\"output_tokens\":" + std::to_string(fold.completion_tokens) +
         ",\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":" +
         std::to_string(fold.prompt_tokens + fold.completion_tokens) + "}";
}

const char* status_of(const AnswerFold& fold) {
  if (!fold.done()) return "in_progress";
  return fold.finish->reason == core::FinishReason::kLength ? "incomplete" : "completed";
}

std::string text_part(std::string_view text) {
  std::string out = R"({"type":"output_text","annotations":[],"logprobs":[],"text":)";
  append_json_string(out, text);
  return out + "}";
}

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(const CallSpec& call, std::int64_t created_unix_s) : repeated_(call.repeated) {
    head_ = "{\"id\":";
    append_json_string(head_, call.id);
    head_ += ",\"object\":\"response\",\"created_at\":" + std::to_string(created_unix_s) + ",\"model\":";
    append_json_string(head_, call.model);
    head_ += ",\"error\":null,";
    append_json_string(item_id_, "msg_" + call.id);
    place_ = ",\"item_id\":" + item_id_ + ",\"output_index\":0,\"content_index\":0";
  }

  void append_opening(std::size_t, std::string& out) override {
    const AnswerFold nothing;
    event("response.created", ",\"response\":" + response(nothing), out);
    event("response.in_progress", ",\"response\":" + response(nothing), out);
    event("response.output_item.added", ",\"output_index\":0,\"item\":" + item(nothing), out);
    event("response.content_part.added", place_ + ",\"part\":" + text_part(""), out);
  }

  void append_events(std::size_t, const AnswerFold& fold, const core::OutputDelta& delta, std::string& out) override {
    if (!delta.text.empty()) {
      std::string fields = place_ + ",\"logprobs\":[],\"delta\":";
      append_json_string(fields, delta.text);
      event("response.output_text.delta", fields, out);
    }
    if (!fold.done()) return;
    std::string text = place_ + ",\"logprobs\":[],\"text\":";
    append_json_string(text, fold.text);
    event("response.output_text.done", text, out);
    event("response.content_part.done", place_ + ",\"part\":" + text_part(fold.text), out);
    event("response.output_item.done", ",\"output_index\":0,\"item\":" + item(fold), out);
  }

  void append_closing(const std::vector<AnswerFold>& folds, std::string& out) override {
    event(std::string("response.") + status_of(folds.front()), ",\"response\":" + response(folds.front()), out);
  }

  std::string whole(const std::vector<AnswerFold>& folds) override { return response(folds.front()); }

  bool answers_aborts() const override { return false; }

 private:
  // `fields`: ,"name":value…
  void event(const std::string& type, const std::string& fields, std::string& out) {
    out += "event: " + type + "\ndata: {\"type\":\"" + type +
           "\",\"sequence_number\":" + std::to_string(sequence_number_++) + fields + "}\n\n";
  }

  std::string item(const AnswerFold& fold) const {
    return "{\"id\":" + item_id_ + ",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"" + status_of(fold) +
           "\",\"content\":[" + (fold.done() ? text_part(fold.text) : "") + "]}";
  }

  std::string response(const AnswerFold& fold) const {
    const bool cut = fold.done() && fold.finish->reason == core::FinishReason::kLength;
    return head_ + repeated_ + "\"status\":\"" + status_of(fold) +
           "\",\"incomplete_details\":" + (cut ? R"({"reason":"max_output_tokens"})" : "null") + ",\"output\":[" +
           (fold.done() ? item(fold) : "") + "],\"usage\":" + (fold.done() ? usage(fold) : "null") + "}";
  }

  std::string repeated_, head_, item_id_, place_;
  std::int64_t sequence_number_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_responses_format(const CallSpec& call, std::int64_t created_unix_s) {
  return std::make_unique<ResponsesFormat>(call, created_unix_s);
}

}  // namespace levada::serve
