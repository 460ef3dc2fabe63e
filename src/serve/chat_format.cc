// Answers of /v1/chat/completions.
#include "serve/answer_format.h"
#include "serve/chat_reply.h"
#include "serve/json_text.h"
#include "serve/logprob_json.h"
#include "serve/openai_text.h"

namespace levada::serve {

namespace {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(const CallSpec& call, std::int64_t created_unix_s)
      : include_usage_(call.include_usage),
        logprobs_(call.members.front().request.logprobs.has_value()),
        choices_(call.choices),
        usage_(call.usage),
        tokenizer_(call.tokenizer),
        told_(call.members.size()),
        whole_head_(openai_head(call, "chat.completion", created_unix_s)),
        event_head_("data: " + openai_head(call, "chat.completion.chunk", created_unix_s)),
        event_tail_(include_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n") {
    reasons_ = call.form && call.form->reasoning;
    for (std::size_t member = 0; member < call.members.size(); ++member) {
      if (call.form) replies_.emplace_back(*call.form, call.call_ids + "_" + std::to_string(member) + "_");
      delta_heads_.push_back(event_head_ + "\"choices\":[{\"index\":" + std::to_string(member) + ",\"delta\":{");
    }
  }

  void append_opening(std::size_t member, std::string& out) override {
    out += delta_heads_[member] + "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null" +
           event_tail_;
  }

  // Log probabilities of tokens whose text is held back come with the next text, or with the finish.
  void append_events(std::size_t member, const AnswerFold& fold, const core::OutputDelta& delta,
                     std::string& out) override {
    if (!replies_.empty()) {
      for (const reply::Piece& piece : replies_[member].take(delta.text, fold.done())) {
        out += delta_heads_[member];
        replies_[member].append_delta(piece, out);
        end_delta(member, fold, out);
      }
    } else if (!delta.text.empty()) {
      out += delta_heads_[member];
      out += "\"content\":\"";
      append_json_escaped(out, delta.text);
      out += '"';
      end_delta(member, fold, out);
    }
    if (!fold.done()) return;
    out += delta_heads_[member] + "},\"logprobs\":";
    append_fresh_logprobs(member, fold, out);
    out += ',';
    append_openai_finish(fold.finish, out, called(member));
    out += event_tail_;
  }

  void append_closing(const std::vector<AnswerFold>& folds, std::string& out) override {
    if (!include_usage_) return;
    out += event_head_ + "\"choices\":[],\"usage\":";
    append_usage(folds, choices_, usage_, out);
    out += "}\n\n";
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::string out = whole_head_ + "\"choices\":[";
    for (std::size_t member = 0; member < folds.size(); ++member) {
      if (member > 0) out += ',';
      out += "{\"index\":" + std::to_string(member) + ",\"message\":{\"role\":\"assistant\",";
      append_message(member, folds[member], out);
      out += "},\"logprobs\":";
      if (logprobs_) {
        append_chat_logprobs(tokenizer_, folds[member].logprobs, out);
      } else {
        out += "null";
      }
      out += ',';
      append_openai_finish(folds[member].finish, out, called(member));
      out += '}';
    }
    out += "],\"usage\":";
    append_usage(folds, choices_, usage_, out);
    out += '}';
    return out;
  }

  bool answers_aborts() const override { return false; }

 private:
  // What follows a delta's fields.
  void end_delta(std::size_t member, const AnswerFold& fold, std::string& out) {
    out += "},\"logprobs\":";
    append_fresh_logprobs(member, fold, out);
    out += ",\"finish_reason\":null";
    out += event_tail_;
  }

  void append_message(std::size_t member, const AnswerFold& fold, std::string& out) {
    if (!replies_.empty()) {
      return replies_[member].append_message(replies_[member].take(fold.text, true), reasons_, out);
    }
    out += "\"content\":";
    append_json_string(out, fold.text);
  }

  bool called(std::size_t member) const { return !replies_.empty() && replies_[member].called(); }

  // Those that no event has told yet; null if there are none.
  void append_fresh_logprobs(std::size_t member, const AnswerFold& fold, std::string& out) {
    const auto fresh = std::span(fold.logprobs).subspan(told_[member]);
    if (fresh.empty()) {
      out += "null";
      return;
    }
    append_chat_logprobs(tokenizer_, fresh, out);
    told_[member] = fold.logprobs.size();
  }

  bool include_usage_, logprobs_;
  bool reasons_ = false;
  std::vector<ChatReply> replies_;  // per member; none: all text is content
  std::size_t choices_;
  UsageForm usage_;
  const text::Tokenizer* tokenizer_;
  std::vector<std::size_t> told_;  // log probabilities, per member
  std::string whole_head_, event_head_, event_tail_;
  std::vector<std::string> delta_heads_;  // per member
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(const CallSpec& call, std::int64_t created_unix_s) {
  return std::make_unique<ChatFormat>(call, created_unix_s);
}

}  // namespace levada::serve
