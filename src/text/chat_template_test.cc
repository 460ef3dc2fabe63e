#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace levada::text {
namespace {

using nlohmann::json;

const std::string kVectors = std::string(LEVADA_SOURCE_DIR) + "/tests/vectors";

std::unique_ptr<ChatTemplate> parse(const std::string& source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? std::move(parsed).value() : nullptr;
}

TEST(ChatTemplate, RendersSmolLm2ConversationsAsHuggingFaceDoes) {
  const json config = json::parse(std::ifstream(kVectors + "/smollm2_tokenizer/tokenizer_config.json"));
  const json golden = json::parse(std::ifstream(kVectors + "/smollm2_golden.json"));
  const auto chat = parse(config["chat_template"]);
  ASSERT_EQ(golden["chat"].size(), 12u);
  for (const json& sample : golden["chat"]) {
    const json inputs = {{"messages", sample["messages"]}, {"add_generation_prompt", sample["add_generation_prompt"]}};
    const auto text = chat->render(inputs.dump());
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(*text, sample["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace levada::text
