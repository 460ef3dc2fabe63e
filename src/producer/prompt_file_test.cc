#include "producer/prompt_file.h"

#include <gtest/gtest.h>

namespace levada::producer {
namespace {

// The one message a user gets: field and text.
std::string refusal(const std::string& text) {
  const auto prompts = parse_prompts(text);
  return prompts.ok() ? "accepted" : prompts.status().field() + ": " + prompts.status().message();
}

TEST(PromptFileTest, EveryFormOfAPromptIsReadInFileOrder) {
  const auto prompts = parse_prompts(
      "{\"task_id\": \"a\", \"prompt\": \"why?\"}\n"
      "\n"
      "{\"text\": \"Once upon\"}\n"
      "{\"messages\": [{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"ho\"}]}\n"
      "{\"input_ids\": [1, 2, 3], \"loss_mask\": [0, 1, 1]}\r\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status().to_string();
  ASSERT_EQ(prompts->size(), 4u);
  EXPECT_EQ((*prompts)[0].task_id, "a");
  EXPECT_EQ((*prompts)[0].messages, R"([{"content":"why?","role":"user"}])");
  EXPECT_EQ((*prompts)[1].kind, PromptKind::kText);
  EXPECT_EQ((*prompts)[1].where, "line 3");
  // The target answers anew: what an assistant said last is left out.
  EXPECT_EQ((*prompts)[2].messages, R"([{"content":"hi","role":"user"}])");
  EXPECT_EQ((*prompts)[3].input_ids, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ((*prompts)[3].loss_mask, (std::vector<std::uint8_t>{0, 1, 1}));
}

TEST(PromptFileTest, AJsonListIsTheSameAsLines) {
  const auto list = parse_prompts("[{\"text\": \"a\"}, {\"text\": \"b\"}]");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[1].text, "b");
  EXPECT_EQ((*list)[1].where, "item 2");
}

// Invariant 32, T4.
TEST(PromptFileTest, I32InvalidAndDuplicateIdsAreRefusedByLine) {
  EXPECT_EQ(refusal("{\"task_id\": \"a b\", \"text\": \"x\"}"),
            "task_id: line 1: must be 1 to 128 of A-Z a-z 0-9 . _ : -");
  EXPECT_EQ(refusal("{\"task_id\": \"\", \"text\": \"x\"}"),
            "task_id: line 1: must be 1 to 128 of A-Z a-z 0-9 . _ : -");
  EXPECT_EQ(refusal("{\"task_id\": 7, \"text\": \"x\"}"), "task_id: line 1: must be a string");
  EXPECT_EQ(refusal("{\"task_id\": \"" + std::string(129, 'a') + "\", \"text\": \"x\"}"),
            "task_id: line 1: must be 1 to 128 of A-Z a-z 0-9 . _ : -");
  EXPECT_EQ(refusal("{\"id\": \"a\", \"text\": \"x\"}\n{\"task_id\": \"a\", \"text\": \"y\"}"),
            "task_id: line 2: a is that of line 1 already");
  EXPECT_EQ(refusal("{\"id\": \"a\", \"task_id\": \"b\", \"text\": \"x\"}"),
            "id: line 1: differs from task_id; give one of them");
}

TEST(PromptFileTest, ATokenThatTheTargetDoesNotHaveIsRefusedByLine) {
  const auto prompts = parse_prompts("{\"text\": \"x\"}\n{\"input_ids\": [1, 384], \"loss_mask\": [0, 1]}");
  ASSERT_TRUE(prompts.ok());
  EXPECT_TRUE(check_tokens(*prompts, 385).ok());
  const Status refused = check_tokens(*prompts, 384);
  EXPECT_EQ(refused.field(), "input_ids[1]");
  EXPECT_EQ(refused.message(), "line 2: token 384 is outside the target's vocabulary of 384");
}

TEST(PromptFileTest, TokensNeedAMaskOfTheirLength) {
  EXPECT_EQ(refusal("{\"input_ids\": [1, 2]}"), "loss_mask: line 1: is missing: input_ids needs it");
  EXPECT_EQ(refusal("{\"loss_mask\": [1]}"), "input_ids: line 1: is missing: loss_mask needs it");
  EXPECT_EQ(refusal("{\"input_ids\": [1, 2], \"loss_mask\": [1]}"), "loss_mask: line 1: has 1 entries for 2 input_ids");
  EXPECT_EQ(refusal("{\"input_ids\": [], \"loss_mask\": []}"), "input_ids: line 1: must not be empty");
  EXPECT_EQ(refusal("{\"input_ids\": [1, 1.5], \"loss_mask\": [1, 1]}"),
            "input_ids[1]: line 1: must be a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal("{\"input_ids\": [18446744073709551615], \"loss_mask\": [1]}"),
            "input_ids[0]: line 1: must be a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal("{\"input_ids\": [-1], \"loss_mask\": [1]}"),
            "input_ids[0]: line 1: must be a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal("{\"input_ids\": [1], \"loss_mask\": [2]}"),
            "loss_mask[0]: line 1: must be a whole number from 0 to 1");
}

TEST(PromptFileTest, WhatIsNoPromptIsNamed) {
  EXPECT_EQ(refusal(""), ": holds no prompts");
  EXPECT_EQ(refusal("[]"), ": holds no prompts");
  EXPECT_EQ(refusal("{\"text\": \"x\"}\n{bad"), ": line 2: is not valid JSON");
  EXPECT_EQ(refusal("[1]"), ": item 1: must be a JSON object");
  EXPECT_EQ(refusal("{}"), "prompt: line 1: is missing; give prompt, text, messages or input_ids and loss_mask");
  EXPECT_EQ(refusal("{\"text\": \"x\", \"prompt\": \"y\"}"), "prompt: line 1: stands beside text; give one of them");
  EXPECT_EQ(refusal("{\"messages\": [{\"role\":\"assistant\",\"content\":\"x\"}]}"),
            "messages: line 1: has no message that could be answered");
  EXPECT_EQ(refusal("{\"text\": \"\xff\"}"), ": line 1: is not valid JSON");
  EXPECT_EQ(refusal(std::string(100'000, '[')), ": is not valid JSON");
}

}  // namespace
}  // namespace levada::producer
