// Answers of /v1/completions.
#include "serve/answer_format.h"
#include "serve/json_text.h"
#include "serve/openai_text.h"

namespace levada::serve {

namespace {

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(const CallSpec& call, std::int64_t created_unix_s)
      : include_usage_(call.include_usage),
        head_(openai_head(call, "text_completion", created_unix_s)),
        event_tail_(include_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n") {}

  void append_opening(std::size_t, std::string&) override {}

  void append_events(std::size_t member, const AnswerFold& fold, const core::OutputDelta& delta,
                     std::string& out) override {
    if (delta.text.empty() && !fold.done()) return;
    out += "data: ";
    out += head_;
    out += "\"choices\":[{";
    append_choice(member, delta.text, fold.finish, out);
    out += event_tail_;
  }

  void append_closing(const std::vector<AnswerFold>& folds, std::string& out) override {
    if (!include_usage_) return;
    out += "data: " + head_ + "\"choices\":[],\"usage\":";
    append_usage(folds, out);
    out += "}\n\n";
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::string out = head_ + "\"choices\":[";
    for (std::size_t member = 0; member < folds.size(); ++member) {
      out += member == 0 ? "{" : ",{";
      append_choice(member, folds[member].text, folds[member].finish, out);
      out += '}';
    }
    out += "],\"usage\":";
    append_usage(folds, out);
    out += '}';
    return out;
  }

  bool answers_aborts() const override { return false; }

 private:
  static void append_choice(std::size_t member, const std::string& text, const std::optional<core::Finish>& finish,
                            std::string& out) {
    out += "\"index\":" + std::to_string(member) + ",\"text\":\"";
    append_json_escaped(out, text);
    out += "\",\"logprobs\":null,";
    append_openai_finish(finish, out);
  }

  bool include_usage_;
  std::string head_, event_tail_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(const CallSpec& call, std::int64_t created_unix_s) {
  return std::make_unique<CompletionFormat>(call, created_unix_s);
}

}  // namespace levada::serve
