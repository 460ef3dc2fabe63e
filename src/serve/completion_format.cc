// Answers of /v1/completions.
#include <algorithm>
#include <numeric>

#include "serve/answer_format.h"
#include "serve/json_text.h"
#include "serve/logprob_json.h"
#include "serve/openai_text.h"

namespace levada::serve {

namespace {

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(const CallSpec& call, std::int64_t created_unix_s)
      : include_usage_(call.include_usage),
        logprobs_(call.members.front().request.logprobs.has_value() && !call.only_ranked),
        choices_(call.choices),
        best_(call.best),
        usage_(call.usage),
        tokenizer_(call.tokenizer),
        members_(call.members.size()),
        head_(openai_head(call, "text_completion", created_unix_s)),
        event_tail_(include_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n") {
    if (!call.echo) return;
    for (std::size_t member = 0; member < members_.size(); ++member) {
      members_[member].echoed = call.members[member].request.prompt;
    }
  }

  void append_opening(std::size_t, std::string&) override {}

  void append_events(std::size_t member, const AnswerFold& fold, const core::OutputDelta& delta,
                     std::string& out) override {
    const bool echoes = !members_[member].echoed.empty() && !members_[member].opened;
    if (delta.text.empty() && !fold.done() && !echoes) return;
    out += "data: ";
    out += head_;
    out += "\"choices\":[{";
    append_choice(member, member, delta.text, fold, out);
    out += event_tail_;
  }

  void append_closing(const std::vector<AnswerFold>& folds, std::string& out) override {
    if (!include_usage_) return;
    out += "data: " + head_ + "\"choices\":[],\"usage\":";
    append_usage(folds, choices_, usage_, out);
    out += "}\n\n";
  }

  std::string whole(const std::vector<AnswerFold>& folds) override {
    std::string out = head_ + "\"choices\":[";
    std::size_t index = 0;
    for (const std::size_t member : told_members(folds)) {
      out += index == 0 ? "{" : ",{";
      append_choice(member, index++, folds[member].text, folds[member], out);
      out += '}';
    }
    out += "],\"usage\":";
    append_usage(folds, choices_, usage_, out);
    out += '}';
    return out;
  }

  bool answers_aborts() const override { return false; }

 private:
  struct Told {
    std::vector<core::Token> echoed;  // the prompt
    bool opened = false;
    std::size_t logprobs = 0;  // tokens whose log probabilities have been told
    std::size_t offset = 0;    // characters of the text they make up
  };

  // All, or the best of each prompt, the most probable first; those told are the ones with the best tokens on average.
  std::vector<std::size_t> told_members(const std::vector<AnswerFold>& folds) const {
    const auto score = [&](std::size_t member) {
      double sum = 0;
      for (const core::TokenLogprob& one : folds[member].logprobs) sum += one.logprob;
      return sum / static_cast<double>(std::max<std::size_t>(folds[member].logprobs.size(), 1));
    };
    std::vector<std::size_t> told;
    for (std::size_t first = 0; first < folds.size(); first += choices_) {
      std::vector<std::size_t> ranked(choices_);
      std::iota(ranked.begin(), ranked.end(), first);
      if (best_ > 0) {
        std::stable_sort(ranked.begin(), ranked.end(),
                         [&](std::size_t one, std::size_t other) { return score(one) > score(other); });
        ranked.resize(best_);
      }
      told.insert(told.end(), ranked.begin(), ranked.end());
    }
    return told;
  }

  // The next piece of a choice: `text`, the prompt before the first one, and the log probabilities not told yet.
  void append_choice(std::size_t member, std::size_t index, const std::string& text, const AnswerFold& fold,
                     std::string& out) {
    Told& told = members_[member];
    out += "\"index\":" + std::to_string(index) + ",\"text\":\"";
    if (!told.opened) append_json_escaped(out, text_of(told.echoed));
    append_json_escaped(out, text);
    out += "\",\"logprobs\":";
    append_logprobs(told, fold, out);
    told.opened = true;
    out += ',';
    append_openai_finish(fold.finish, out);
  }

  void append_logprobs(Told& told, const AnswerFold& fold, std::string& out) const {
    std::vector<ToldToken> tokens;
    if (logprobs_ && !told.opened && !told.echoed.empty()) {
      tokens.push_back({told.echoed.front(), nullptr});
      for (const core::TokenLogprob& logprob : fold.prompt_logprobs) tokens.push_back({logprob.token, &logprob});
    }
    for (; logprobs_ && told.logprobs < fold.logprobs.size(); ++told.logprobs) {
      tokens.push_back({fold.logprobs[told.logprobs].token, &fold.logprobs[told.logprobs]});
    }
    if (tokens.empty()) {
      out += "null";
    } else {
      append_completion_logprobs(tokenizer_, tokens, told.offset, out);
    }
  }

  std::string text_of(const std::vector<core::Token>& tokens) const {
    std::string text;
    for (const core::Token token : tokens) {
      if (tokenizer_ != nullptr && !tokenizer_->is_special(token)) text += tokenizer_->bytes(token);
    }
    return text;
  }

  bool include_usage_, logprobs_;
  std::size_t choices_, best_;
  UsageForm usage_;
  const text::Tokenizer* tokenizer_;
  std::vector<Told> members_;
  std::string head_, event_tail_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(const CallSpec& call, std::int64_t created_unix_s) {
  return std::make_unique<CompletionFormat>(call, created_unix_s);
}

}  // namespace levada::serve
