#include "cli/sglang_compat.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "cli/server_options.h"

namespace levada::cli {
namespace {

TEST(SglangCompat, IsAskedForByItsFlagAlone) {
  const char* const spaced[] = {"--port", "1", "--compat", "sglang"};
  const char* const joined[] = {"--compat=sglang"};
  const char* const other[] = {"--compat", "none", "sglang"};
  EXPECT_TRUE(asks_for_sglang(spaced));
  EXPECT_TRUE(asks_for_sglang(joined));
  EXPECT_FALSE(asks_for_sglang(other));
  EXPECT_FALSE(asks_for_sglang({}));
}

// The command line SpecForge's launcher renders for a capture server.
TEST(SglangCompat, ACommandLineOfSpecForgeStartsOurServer) {
  ServerOptions options;
  OptionTable table;
  describe(table, options);
  const std::vector<const char*> words = {"--compat",
                                          "sglang",
                                          "--model-path",
                                          "m",
                                          "--dtype",
                                          "bfloat16",
                                          "--trust-remote-code",
                                          "--skip-tokenizer-init",
                                          "--tp-size",
                                          "1",
                                          "--attention-backend",
                                          "flashinfer",
                                          "--host",
                                          "127.0.0.1",
                                          "--port",
                                          "30000",
                                          "--mem-fraction-static",
                                          "0.4",
                                          "--chunked-prefill-size",
                                          "-1",
                                          "--enable-spec-capture",
                                          "--spec-capture-method",
                                          "dflash",
                                          "--spec-capture-aux-layer-ids",
                                          "1",
                                          "9",
                                          "17",
                                          "--spec-capture-store-id",
                                          "run",
                                          "--dp-size",
                                          "1"};
  const auto line = recipe::parse_command_line(words, table, recipe::Overrides::kApply, recipe::UnknownFlags::kCollect);
  ASSERT_TRUE(line.ok()) << line.status().to_string();
  EXPECT_TRUE(line->positionals.empty());
  EXPECT_TRUE(pass_over(line->unknown).ok());
  EXPECT_EQ(options.engine.model_path, "m");
  EXPECT_EQ(options.sched.chunked_prefill_size, -1);
  EXPECT_TRUE(options.capture.enable_spec_capture);
  EXPECT_EQ(options.capture.spec_capture_aux_layer_ids, "1,9,17");
}

TEST(SglangCompat, WhatWouldChangeTheNumbersIsRefused) {
  EXPECT_TRUE(pass_over({{"--ep-size", "1"}, {"--tp-size", "2"}, {"--kv-cache-dtype", "auto"}}).ok());
  EXPECT_NE(pass_over({{"--quantization", "fp8"}}).message().find("--quantization fp8"), std::string::npos);
  EXPECT_FALSE(pass_over({{"--dp-size", "2"}}).ok());
  EXPECT_FALSE(pass_over({{"--enable-dp-attention", ""}}).ok());
}

TEST(SglangCompat, ThePluginsEnvironmentTurnsCapturesOn) {
  ServerOptions options;
  OptionTable table;
  describe(table, options);
  ::setenv("SPECFORGE_SPEC_CAPTURE", "1", 1);
  EXPECT_TRUE(take_sglang_environment(table).ok());
  ::unsetenv("SPECFORGE_SPEC_CAPTURE");
  EXPECT_TRUE(options.capture.enable_spec_capture);
}

// What these flags leave of themselves, and speculative_num_draft_tokens afterwards; or why not.
std::string taken(std::vector<recipe::UnknownFlag> flags, std::int64_t draft_tokens = 0,
                  const std::string& algorithm = "auto") {
  sched::Options options;
  options.speculative_algorithm = algorithm;
  options.speculative_num_draft_tokens = draft_tokens;
  OptionTable table;
  sched::describe(table, options);
  const Status status = take_speculative_flags(flags, table);
  if (!status.ok()) return status.message();
  std::string rest;
  for (const recipe::UnknownFlag& flag : flags) rest += flag.name + " ";
  return rest + std::to_string(options.speculative_num_draft_tokens);
}

TEST(SglangCompat, TheBlockSizeHasTwoNamesThatMustAgree) {
  EXPECT_EQ(taken({{"--speculative-dflash-block-size", "8"}}), "8");
  EXPECT_EQ(taken({{"--speculative-dflash-block-size", "8"}}, 8), "8");
  EXPECT_EQ(taken({{"--speculative-dflash-block-size", "8"}}, 16),
            "--speculative-dflash-block-size 8 and --speculative-num-draft-tokens 16 mean the same and must agree");
  EXPECT_EQ(taken({{"--speculative-dflash-block-size", "-8"}}),
            "--speculative-dflash-block-size must be a whole number, got '-8'");
  EXPECT_NE(taken({{"--speculative-dflash-block-size", "800"}}).find("800"), std::string::npos)
      << "beyond what is allowed";
}

TEST(SglangCompat, StepsAndBranchesOfADraftAreOne) {
  EXPECT_EQ(
      taken({{"--speculative-num-steps", "1"}, {"--speculative-eagle-topk", "4"}, {"--attention-backend", "x"}}, 8),
      "--attention-backend 8");
  EXPECT_EQ(taken({{"--speculative-num-steps", ""}}), "--speculative-num-steps must be a whole number, got ''");
}

TEST(SglangCompat, StepsOfAnEagleDraftAreItsChains) {
  EXPECT_EQ(taken({{"--speculative-num-steps", "3"}, {"--speculative-eagle-topk", "1"}}, 0, "EAGLE3"), "4");
  EXPECT_EQ(taken({{"--speculative-num-steps", "5"}, {"--speculative-eagle-topk", "4"}}, 8, "EAGLE3"), "6")
      << "SGLang's defaults for Llama: a tree there, its depth here";
  EXPECT_NE(taken({{"--speculative-num-steps", "900"}}, 0, "EAGLE3").find("901"), std::string::npos);
}

}  // namespace
}  // namespace levada::cli
