// Answers of /v1/messages.
#include "serve/answer_format.h"
#include "serve/json_text.h"
#include "serve/reply_blocks.h"

namespace levada::serve {

namespace {

using Kind = reply::Piece::Kind;

// The prompt's tokens in Anthropic's counting: those found in the cache stand apart.
std::string usage(const AnswerFold& fold) {
  return "{\"input_tokens\":" + std::to_string(fold.prompt_tokens - fold.cached_tokens) +
         ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" + std::to_string(fold.cached_tokens) +
         ",\"output_tokens\":" + std::to_string(fold.completion_tokens) + "}";
}

// "stop_reason":…,"stop_sequence":…
void append_stop(const std::optional<core::Finish>& finish, bool called, std::string& out) {
  const auto* sequence = finish ? std::get_if<std::string>(&finish->matched) : nullptr;
  out += "\"stop_reason\":";
  if (!finish) {
    out += "null";
  } else if (finish->reason == core::FinishReason::kLength) {
    out += "\"max_tokens\"";
  } else if (called) {
    out += "\"tool_use\"";
  } else {
    out += sequence == nullptr ? "\"end_turn\"" : "\"stop_sequence\"";
  }
  out += ",\"stop_sequence\":";
  if (sequence == nullptr || called) {
    out += "null";
  } else {
    append_json_string(out, *sequence);
  }
}

// A block as the whole answer holds it, or as a stream opens it: `text` is then empty.
void append_block(const ReplyBlock& block, std::string_view text, std::string& out) {
  switch (block.kind) {
    case Kind::kContent: out += R"({"type":"text","text":)"; break;
    case Kind::kReasoning: out += R"({"type":"thinking","signature":"","thinking":)"; break;
    case Kind::kCall:
      out += R"({"type":"tool_use","id":)";
      append_json_string(out, block.call_id);
      out += ",\"name\":";
      append_json_string(out, block.name);
      out += ",\"input\":";
      out += text.empty() ? "{}" : text;  // JSON already
      out += '}';
      return;
  }
  append_json_string(out, text);
  out += '}';
}

const char* delta_of(Kind kind) {
  switch (kind) {
    case Kind::kContent: return R"("text_delta","text":)";
    case Kind::kReasoning: return R"("thinking_delta","thinking":)";
    case Kind::kCall: break;
  }
  return R"("input_json_delta","partial_json":)";
}

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(const CallSpec& call) : blocks_(call) {
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
    for (const BlockStep& step : blocks_.take(delta.text, fold.done())) append_step(step, out);
    if (fold.done()) append_end(fold, out);
  }

  void append_closing(const std::vector<AnswerFold>&, std::string& out) override {
    out += "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    blocks_.take(folds.front().text, true);
    std::string out = head_;
    for (const ReplyBlock& block : blocks_.blocks()) {
      if (&block != &blocks_.blocks().front()) out += ',';
      append_block(block, block.text, out);
    }
    out += "],";
    append_stop(folds.front().finish, blocks_.called(), out);
    return out + ",\"usage\":" + usage(folds.front()) + "}";
  }

  bool answers_aborts() const override { return false; }

 private:
  void append_start(const AnswerFold& fold, std::string& out) const {
    out += "event: message_start\ndata: {\"type\":\"message_start\",\"message\":" + head_ + "],";
    append_stop(std::nullopt, false, out);
    out += ",\"usage\":" + usage(fold) + "}}\n\n";
  }

  void append_step(const BlockStep& step, std::string& out) const {
    const ReplyBlock& block = blocks_.blocks()[step.block];
    const char* type = step.kind == BlockStep::Kind::kOpened ? "content_block_start"
                       : step.kind == BlockStep::Kind::kMore ? "content_block_delta"
                                                             : "content_block_stop";
    out += std::string("event: ") + type + "\ndata: {\"type\":\"" + type + "\",\"index\":" + std::to_string(step.block);
    if (step.kind == BlockStep::Kind::kOpened) {
      out += ",\"content_block\":";
      append_block(block, "", out);
    } else if (step.kind == BlockStep::Kind::kMore) {
      out += std::string(",\"delta\":{\"type\":") + delta_of(block.kind);
      append_json_string(out, step.text);
      out += '}';
    }
    out += "}\n\n";
  }

  void append_end(const AnswerFold& fold, std::string& out) const {
    out += "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{";
    append_stop(fold.finish, blocks_.called(), out);
    out += "},\"usage\":" + usage(fold) + "}\n\n";
  }

  ReplyBlocks blocks_;
  std::string head_;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_format(const CallSpec& call) {
  return std::make_unique<MessagesFormat>(call);
}

}  // namespace levada::serve
