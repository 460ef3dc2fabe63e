// What: the SmolLM2 tokenizer and chat template of tests/vectors as a ModelContext, for serve's tests.
// Owner: the test process.
// Thread: any.
// Invariant: context of 256 tokens; check_fits says what the scheduler would.
// No format of its own.
#pragma once

#include <simdjson.h>

#include <memory>
#include <string>

#include "serve/model_context.h"

namespace levada::serve {

inline const text::Tokenizer& test_tokenizer() {
  static const std::unique_ptr<text::Tokenizer> tokenizer =
      text::Tokenizer::from_json(LEVADA_SOURCE_DIR "/tests/vectors/smollm2_tokenizer/tokenizer.json").value();
  return *tokenizer;
}

inline const text::ChatTemplate& test_template() {
  static const std::unique_ptr<text::ChatTemplate> chat_template =
      text::ChatTemplate::parse(test_tokenizer().chat_template()).value();
  return *chat_template;
}

inline core::ModelInfo test_info() {
  core::ModelInfo info;
  info.path = "smollm2";
  info.architecture = "llama";
  info.vocab_size = test_tokenizer().vocab_size();
  info.context_length_tokens = 256;
  info.eos_token_ids = {*test_tokenizer().eos()};
  return info;
}

inline ModelContext test_model() {
  ModelContext model;
  model.info = test_info();
  model.served_name = "smollm2";
  model.context_length_tokens = model.info.context_length_tokens;
  model.tokenizer = &test_tokenizer();
  model.chat_template = &test_template();
  model.max_batch_prompts = 8;
  model.max_text_bytes = longest_fitting_text_bytes(test_tokenizer(), model.context_length_tokens);
  model.check_fits = [](std::int32_t tokens) -> Status {
    if (tokens < 256) return {};
    return payload_too_large("The input (" + std::to_string(tokens) +
                             " tokens) is longer than the model's context length (256 tokens).");
  };
  return model;
}

}  // namespace levada::serve
