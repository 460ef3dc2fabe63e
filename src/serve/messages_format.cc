// Answers of /v1/messages.
#include "serve/answer_format.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

// The prompt's tokens in Anthropic's counting: those found in the cache stand apart.
std::string usage(const AnswerFold& fold) {
  return "{\"input_tokens\":" + std::to_string(fold.prompt_tokens - fold.cached_tokens) +
         ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" + std::to_string(fold.cached_tokens) +
         ",\"output_tokens\":" + std::to_string(fold.completion_tokens) + "}";
}

// "stop_reason":…,"stop_sequence":…
void append_stop(const std::optional<core::Finish>& finish, std::string& out) {
  const auto* sequence = finish ? std::get_if<std::string>(&finish->matched) : nullptr;
  out += "\"stop_reason\":";
  if (!finish) {
    out += "null";
  } else if (finish->reason == core::FinishReason::kLength) {
    out += "\"max_tokens\"";
  } else {
    out += sequence == nullptr ? "\"end_turn\"" : "\"stop_sequence\"";
  }
  out += ",\"stop_sequence\":";
  if (sequence == nullptr) {
    out += "null";
  } else {
    append_json_string(out, *sequence);
  }
}

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(const CallSpec& call) {
    head_ = R"({"type":"message","role":"assistant","id":)";
    append_json_string(head_, call.id);
    head_ += ",\"model\":";
    append_json_string(head_, call.model);
    head_ += ",\"content\":[";
  }

  // The opening tells the prompt's length, which the first delta brings.
  void append_opening(std::size_t, std::string&) override {}

  void append_events(std::size_t, const AnswerFold& fold, const core::OutputDelta& delta, std::string& out) override {
    if (!std::exchange(opened_, true)) append_start(fold, out);
    if (!delta.text.empty()) {
      out +=
          "event: content_block_delta\n"
          R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":")";
      append_json_escaped(out, delta.text);
      out += "\"}}\n\n";
    }
    if (fold.done()) append_end(fold, out);
  }

  void append_closing(const std::vector<AnswerFold>&, std::string& out) override {
    out += "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::string out = head_ + R"({"type":"text","text":)";
    append_json_string(out, folds.front().text);
    out += "}],";
    append_stop(folds.front().finish, out);
    return out + ",\"usage\":" + usage(folds.front()) + "}";
  }

  bool answers_aborts() const override { return false; }

 private:
  void append_start(const AnswerFold& fold, std::string& out) const {
    out += "event: message_start\ndata: {\"type\":\"message_start\",\"message\":" + head_ + "],";
    append_stop(std::nullopt, out);
    out += ",\"usage\":" + usage(fold) + "}}\n\n";
    out +=
        "event: content_block_start\n"
        R"(data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})"
        "\n\n";
  }

  static void append_end(const AnswerFold& fold, std::string& out) {
    out += "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
    out += "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{";
    append_stop(fold.finish, out);
    out += "},\"usage\":" + usage(fold) + "}\n\n";
  }

  std::string head_;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_format(const CallSpec& call) {
  return std::make_unique<MessagesFormat>(call);
}

}  // namespace levada::serve
