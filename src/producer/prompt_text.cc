#include "producer/prompt_text.h"

#include <nlohmann/json.hpp>

#include "files/gguf.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace levada::producer {
namespace {

class PromptTokenizer {
 public:
  static Result<std::shared_ptr<const PromptTokenizer>> open(const std::filesystem::path& file) {
    auto opened = std::make_shared<PromptTokenizer>();
    if (file.extension() == ".gguf") {
      LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<files::GgufFile> gguf, files::GgufFile::open(file));
      LEVADA_ASSIGN_OR_RETURN(opened->tokenizer_, text::Tokenizer::from_gguf(*gguf, file.string()));
    } else {
      LEVADA_ASSIGN_OR_RETURN(opened->tokenizer_, text::Tokenizer::from_json(file));
    }
    if (!opened->tokenizer_->chat_template().empty()) {
      LEVADA_ASSIGN_OR_RETURN(opened->template_, text::ChatTemplate::parse(opened->tokenizer_->chat_template()));
    }
    return std::shared_ptr<const PromptTokenizer>(std::move(opened));
  }

  Result<std::vector<std::int32_t>> tokens_of(const Prompt& prompt) const {
    if (prompt.kind == PromptKind::kText) return tokenizer_->encode(prompt.text, {true, true});
    if (template_ == nullptr) {
      return invalid_argument(prompt.where + ": the target has no chat template; give text instead", "messages");
    }
    auto text = template_->render(inputs_for(prompt));
    if (!text.ok()) return Status(text.status().code(), prompt.where + ": " + text.status().message(), "messages");
    return tokenizer_->encode(*text, {false, true});
  }

 private:
  std::string inputs_for(const Prompt& prompt) const {
    nlohmann::json inputs;
    if (const auto bos = tokenizer_->bos()) inputs["bos_token"] = tokenizer_->bytes(*bos);
    if (const auto eos = tokenizer_->eos()) inputs["eos_token"] = tokenizer_->bytes(*eos);
    inputs["add_generation_prompt"] = true;
    inputs["messages"] = nlohmann::json::parse(prompt.messages);
    return inputs.dump();
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
};

}  // namespace

Result<TokenizePrompt> open_prompt_tokenizer(const std::filesystem::path& tokenizer) {
  LEVADA_ASSIGN_OR_RETURN(auto opened, PromptTokenizer::open(tokenizer));
  return TokenizePrompt([opened = std::move(opened)](const Prompt& prompt) { return opened->tokens_of(prompt); });
}

}  // namespace levada::producer
