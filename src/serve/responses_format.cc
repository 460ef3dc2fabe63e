// Answers of /v1/responses.
#include "serve/answer_format.h"
#include "serve/json_text.h"
#include "serve/openai_text.h"
#include "serve/reply_blocks.h"

namespace levada::serve {

namespace {

using Kind = reply::Piece::Kind;

std::string usage(const AnswerFold& fold, std::int64_t reasoning_tokens) {
  return "{\"input_tokens\":" + std::to_string(fold.prompt_tokens) +
         ",\"input_tokens_details\":{\"cached_tokens\":" + std::to_string(fold.cached_tokens) +
         "},\"output_tokens\":" + std::to_string(fold.completion_tokens) +
         ",\"output_tokens_details\":{\"reasoning_tokens\":" + std::to_string(reasoning_tokens) +
         "},\"total_tokens\":" + std::to_string(fold.prompt_tokens + fold.completion_tokens) + "}";
}

bool is_cut(const AnswerFold& fold) { return fold.done() && fold.finish->reason == core::FinishReason::kLength; }

const char* status_of(const AnswerFold& fold) {
  if (!fold.done()) return "in_progress";
  return is_cut(fold) ? "incomplete" : "completed";
}

// How the kinds of blocks are called in items and events.
struct Words {
  const char *id, *part, *event;
};
constexpr Words kMessage = {"msg_", R"({"type":"output_text","annotations":[],"logprobs":[],"text":)", "output_text"};
constexpr Words kReasoning = {"rs_", R"({"type":"reasoning_text","text":)", "reasoning_text"};
constexpr Words kCall = {"fc_", "", "function_call_arguments"};

const Words& words_of(Kind kind) {
  switch (kind) {
    case Kind::kContent: return kMessage;
    case Kind::kReasoning: return kReasoning;
    case Kind::kCall: break;
  }
  return kCall;
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string text_part(const ReplyBlock& block, std::string_view text) {
  return words_of(block.kind).part + json_string(text) + "}";
}

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(const CallSpec& call, std::int64_t created_unix_s)
      : blocks_(call), reasoning_(call.usage.reasoning), id_(call.id), repeated_(call.repeated) {
    head_ = "{\"id\":" + json_string(call.id) +
            ",\"object\":\"response\",\"created_at\":" + std::to_string(created_unix_s) +
            ",\"model\":" + json_string(call.model) + ",\"error\":null,";
  }

  void append_opening(std::size_t, std::string& out) override {
    const AnswerFold nothing;
    event("response.created", ",\"response\":" + response(nothing), out);
    event("response.in_progress", ",\"response\":" + response(nothing), out);
  }

  void append_events(std::size_t, const AnswerFold& fold, const core::OutputDelta& delta, std::string& out) override {
    for (const BlockStep& step : blocks_.take(delta.text, fold.done())) {
      switch (step.kind) {
        case BlockStep::Kind::kOpened: append_opened(step.block, out); break;
        case BlockStep::Kind::kMore: append_more(step, out); break;
        case BlockStep::Kind::kClosed: append_closed(step.block, fold, out); break;
      }
    }
  }

  void append_closing(const std::vector<AnswerFold>& folds, std::string& out) override {
    event(std::string("response.") + status_of(folds.front()), ",\"response\":" + response(folds.front()), out);
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    blocks_.take(folds.front().text, true);
    return response(folds.front());
  }

  bool answers_aborts() const override { return false; }

 private:
  // `fields`: ,"name":value…
  void event(const std::string& type, const std::string& fields, std::string& out) {
    out += "event: " + type + "\ndata: {\"type\":\"" + type +
           "\",\"sequence_number\":" + std::to_string(sequence_number_++) + fields + "}\n\n";
  }

  const ReplyBlock& block(std::size_t index) const { return blocks_.blocks()[index]; }
  std::string item_id(std::size_t index) const {
    return json_string(words_of(block(index).kind).id + id_ + "_" + std::to_string(index));
  }
  // Where an event belongs: ,"item_id":…
  std::string place(std::size_t index) const {
    const char* part = block(index).kind == Kind::kCall ? "" : ",\"content_index\":0";
    return ",\"item_id\":" + item_id(index) + ",\"output_index\":" + std::to_string(index) + part;
  }

  void append_opened(std::size_t index, std::string& out) {
    event("response.output_item.added",
          ",\"output_index\":" + std::to_string(index) + ",\"item\":" + item(index, "in_progress"), out);
    if (block(index).kind == Kind::kCall) return;
    event("response.content_part.added", place(index) + ",\"part\":" + text_part(block(index), ""), out);
  }

  void append_more(const BlockStep& step, std::string& out) {
    const Kind kind = block(step.block).kind;
    event(
        std::string("response.") + words_of(kind).event + ".delta",
        place(step.block) + (kind == Kind::kContent ? ",\"logprobs\":[]" : "") + ",\"delta\":" + json_string(step.text),
        out);
  }

  void append_closed(std::size_t index, const AnswerFold& fold, std::string& out) {
    const ReplyBlock& closed = block(index);
    const std::string done = std::string("response.") + words_of(closed.kind).event + ".done";
    if (closed.kind == Kind::kCall) {
      event(done, place(index) + ",\"name\":" + json_string(closed.name) + ",\"arguments\":" + json_string(closed.text),
            out);
    } else {
      const char* logprobs = closed.kind == Kind::kContent ? ",\"logprobs\":[]" : "";
      event(done, place(index) + logprobs + ",\"text\":" + json_string(closed.text), out);
      event("response.content_part.done", place(index) + ",\"part\":" + text_part(closed, closed.text), out);
    }
    event("response.output_item.done",
          ",\"output_index\":" + std::to_string(index) + ",\"item\":" + item(index, closed_status(index, fold)), out);
  }

  // The block that the limit cut is the last one; a call comes whole.
  const char* closed_status(std::size_t index, const AnswerFold& fold) const {
    const bool cut = is_cut(fold) && index + 1 == blocks_.blocks().size() && block(index).kind != Kind::kCall;
    return cut ? "incomplete" : "completed";
  }

  std::string item(std::size_t index, std::string_view status) const {
    const ReplyBlock& told = block(index);
    const bool begun = status == "in_progress";
    const std::string head = "{\"id\":" + item_id(index) + ",\"status\":\"" + std::string(status) + "\",";
    const std::string content = begun ? "[]" : "[" + text_part(told, told.text) + "]";
    switch (told.kind) {
      case Kind::kContent: return head + R"("type":"message","role":"assistant","content":)" + content + "}";
      case Kind::kReasoning: return head + R"("type":"reasoning","summary":[],"content":)" + content + "}";
      case Kind::kCall: break;
    }
    return head + "\"type\":\"function_call\",\"call_id\":" + json_string(told.call_id) +
           ",\"name\":" + json_string(told.name) + ",\"arguments\":" + (begun ? "\"\"" : json_string(told.text)) + "}";
  }

  std::string response(const AnswerFold& fold) const {
    std::string items;
    for (std::size_t index = 0; fold.done() && index < blocks_.blocks().size(); ++index) {
      if (index > 0) items += ',';
      items += item(index, closed_status(index, fold));
    }
    return head_ + repeated_ + "\"status\":\"" + status_of(fold) +
           "\",\"incomplete_details\":" + (is_cut(fold) ? R"({"reason":"max_output_tokens"})" : "null") +
           ",\"output\":[" + items +
           "],\"usage\":" + (fold.done() ? usage(fold, reasoning_tokens(reasoning_, fold)) : "null") + "}";
  }

  ReplyBlocks blocks_;
  std::optional<ReasoningTokens> reasoning_;
  std::string id_, repeated_, head_;
  std::int64_t sequence_number_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_responses_format(const CallSpec& call, std::int64_t created_unix_s) {
  return std::make_unique<ResponsesFormat>(call, created_unix_s);
}

}  // namespace levada::serve
