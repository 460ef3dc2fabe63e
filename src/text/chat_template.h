// What: ChatTemplate, a model's Jinja chat template, rendered by the engine built from llama.cpp's sources.
// Owner: whoever parsed it.
// Thread: render() from any thread.
// Invariant: untrusted templates can't hang or crash the process: nesting depth, source length, steps and output size
// are bounded, and a bound that is hit is a kInvalidArgument that names it. Options set as Hugging Face does:
// trim_blocks and lstrip_blocks on; raise_exception, strftime_now, tojson known.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace levada::text {

class ChatTemplate {
 public:
  static Result<std::unique_ptr<ChatTemplate>> parse(const std::string& source);
  ~ChatTemplate();

  // `inputs_json`: one JSON object with the template's variables: messages, tools, add_generation_prompt, bos_token,
  // eos_token and any chat_template_kwargs. kInvalidArgument carries the template's own raise_exception text.
  Result<std::string> render(std::string_view inputs_json) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::text
