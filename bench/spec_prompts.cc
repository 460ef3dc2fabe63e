#include "bench/spec_prompts.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/chat_template.h"

namespace levada::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMessages[] = {
    "Explain to a child why the sky is blue.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "What should I think of before I adopt a dog?",
    "Describe how bread is made, from the field to the table.",
    "Give me five ideas for a rainy Sunday with two small children.",
    "How does a refrigerator keep food cold?",
    "Write a polite e-mail that asks my landlord to repair the heating.",
    "What are the main differences between Python and C++?",
    "Tell me about the history of the bicycle.",
    "Plan a three-day trip to Lisbon for someone who likes music.",
    "Why do leaves change their colour in autumn?",
    "Write a poem about the first snow of the year.",
    "How can I learn to cook if I have never done it?",
    "Explain what a database index is and when it helps.",
    "What would happen if the moon came closer to the earth?",
    "Give arguments for and against school uniforms.",
};

constexpr const char* kTexts[] = {
    "The keeper counted the ships from the gallery, wrote their names in the book and trimmed the lamp before the fog "
    "came in from the north. Nobody had asked him about the ninth ship.\n",
    "server:\n  host: 127.0.0.1\n  port: 30000\n  model: smollm2\n  device: cpu\n  max_running_requests: 64\n"
    "  chunked_prefill_size: 512\n",
    "def area(width, height):\n    if width < 0 or height < 0:\n        raise ValueError(\"negative side\")\n"
    "    return width * height\n\n",
    "| day | bread | rolls | cakes |\n| Monday | 41 | 112 | 7 |\n| Tuesday | 38 | 97 | 9 |\n| Friday | 64 | 180 | 22 "
    "|\n",
};

constexpr std::size_t kBegun = 8;  // tokens of the fourth copy

// The variables of a chat template.
Result<std::string> inputs_of(const std::string& line, const std::string& where) {
  Json inputs{{"add_generation_prompt", true}};
  if (line.front() == '{') {
    const Json object = Json::parse(line, nullptr, false);
    const bool message = object.is_object() && object.contains("prompt") && object["prompt"].is_string();
    if (!message && (!object.is_object() || !object.contains("messages"))) {
      return invalid_argument(where + ": a line is a message, or a JSON object with 'prompt' or 'messages'", "prompts");
    }
    inputs["messages"] =
        message ? Json::array({{{"role", "user"}, {"content", object["prompt"]}}}) : object["messages"];
  } else {
    inputs["messages"] = Json::array({{{"role", "user"}, {"content", line}}});
  }
  return inputs.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<std::string>> lines_of(const std::string& file) {
  if (file.empty()) return std::vector<std::string>(std::begin(kMessages), std::end(kMessages));
  std::ifstream in(file);
  if (!in) return not_found("cannot read " + file, "prompts");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty()) return invalid_argument(file + " has no prompts", "prompts");
  return lines;
}

}  // namespace

Result<std::vector<std::vector<core::Token>>> chat_prompts(const std::string& file, const text::Tokenizer& tokenizer) {
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::string> lines, lines_of(file));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<text::ChatTemplate> chat_template,
                          text::ChatTemplate::parse(tokenizer.chat_template()));
  std::vector<std::vector<core::Token>> prompts;
  for (const std::string& line : lines) {
    const std::string where = file + ", prompt " + std::to_string(prompts.size() + 1);
    LEVADA_ASSIGN_OR_RETURN(const std::string inputs, inputs_of(line, where));
    const Result<std::string> rendered = chat_template->render(inputs);
    if (!rendered.ok()) return invalid_argument(where + ": " + rendered.status().message(), "prompts");
    if (text::find_invalid_utf8(*rendered) != std::string::npos)
      return invalid_argument(where + ": no UTF-8", "prompts");
    prompts.push_back(tokenizer.encode(*rendered, {.add_special_tokens = false}));
  }
  return prompts;
}

std::vector<std::vector<core::Token>> repeating_prompts(const text::Tokenizer& tokenizer) {
  std::vector<std::vector<core::Token>> prompts;
  for (const std::string text : kTexts) {
    const std::vector<core::Token> once = tokenizer.encode(text, {.add_special_tokens = false});
    std::vector<core::Token>& prompt = prompts.emplace_back();
    for (int copy = 0; copy < 3; ++copy) prompt.insert(prompt.end(), once.begin(), once.end());
    prompt.insert(prompt.end(), once.begin(),
                  once.begin() + static_cast<std::ptrdiff_t>(std::min(kBegun, once.size())));
  }
  return prompts;
}

}  // namespace levada::bench
