// Every option is reachable by name and reaches whom it is for.
#include "serve/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada::serve {
namespace {

TEST(Options, EachIsSetByNameAndBadValuesAreRefused) {
  Options options;
  OptionTable table;
  describe(table, options);
  const std::pair<const char*, const char*> values[] = {{"host", "::1"},
                                                        {"port", "0"},
                                                        {"served_model_name", "m"},
                                                        {"api_key", "k"},
                                                        {"admin_api_key", "a"},
                                                        {"chat_template", "t.jinja"},
                                                        {"tool_call_parser", "llama3"},
                                                        {"reasoning_parser", "none"},
                                                        {"max_body_bytes", "2048"},
                                                        {"max_batch_prompts", "3"},
                                                        {"enable_return_hidden_states", "true"},
                                                        {"openai_chat_default_max_tokens", "77"},
                                                        {"openai_compat", "kimi"},
                                                        {"openai_normalize_tool_choice", "true"},
                                                        {"live_samples_dir", "spool"},
                                                        {"live_samples_rate", "0.25"},
                                                        {"live_samples_bytes", "70000"},
                                                        {"health_timeout_s", "4"}};
  for (const auto& [name, value] : values) EXPECT_TRUE(table.set("serve", name, value).ok()) << name;
  EXPECT_EQ(table.options().size(), std::size(values)) << "an option without a test";
  EXPECT_EQ(options.chat_template, "t.jinja");
  EXPECT_EQ(options.max_batch_prompts, 3);
  EXPECT_TRUE(check_options(options).ok());
  options.openai_compat = "acme";
  EXPECT_EQ(check_options(options).field(), "openai_compat");
  options.openai_compat = "glm";
  options.reasoning_parser = "aloud";
  EXPECT_EQ(check_options(options).field(), "reasoning_parser");
  options.tool_call_parser = "smoke";
  EXPECT_EQ(check_options(options).field(), "tool_call_parser");
  EXPECT_EQ(options.live_samples_dir, "spool");
  EXPECT_EQ(options.live_samples_rate, 0.25);
  EXPECT_EQ(options.live_samples_bytes, 70000);
  EXPECT_FALSE(table.set("serve", "live_samples_rate", "1.5").ok());
  EXPECT_FALSE(table.set("serve", "port", "70000").ok());
  EXPECT_FALSE(table.set("serve", "max_body_bytes", "1").ok());

  const http::ServerOptions http = http_options(options);
  EXPECT_EQ(http.host, "::1");
  EXPECT_EQ(http.port, 0);
  EXPECT_EQ(http.max_body_bytes, 2048u);
}

TEST(Options, AnEmptyKeyIsRefusedInsteadOfOpeningTheServer) {
  Options options;
  OptionTable table;
  describe(table, options);
  for (const char* name : {"api_key", "admin_api_key"}) {
    const Status status = table.set("serve", name, "");
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_THAT(status.message(), ::testing::HasSubstr("must not be empty: leave it out")) << status.message();
  }
}

TEST(Options, AKeyThatNoHeaderCanCarryIsRefusedAndNotRepeated) {
  for (const char* key : {"\x7F", "a b", "a\n", "secret\t", "schl\xC3\xBCssel"}) {
    Options options;
    options.admin_api_key = key;
    const Status status = check_options(options);
    EXPECT_EQ(status.field(), "admin_api_key") << key;
    EXPECT_THAT(status.message(), ::testing::Not(::testing::HasSubstr(key)));
  }
  Options options;
  options.api_key = "sk-proj_4.7/+=~!";
  EXPECT_TRUE(check_options(options).ok());
}

TEST(Options, AreToldWithTheirTypesAndWithoutTheKeys) {
  Options options;
  options.served_model_name = "123";  // a name stays a name
  options.api_key = "hidden";
  OptionTable table;
  describe(table, options);
  const auto arguments = arguments_of(table);
  const auto told = [&](const std::string& name) {
    const auto found = std::find_if(arguments.begin(), arguments.end(), [&](const auto& a) { return a.first == name; });
    return found == arguments.end() ? "not told" : found->second;
  };
  EXPECT_EQ(told("served_model_name"), "\"123\"");
  EXPECT_EQ(told("port"), "30000");
  EXPECT_EQ(told("api_key"), "\"***\"");
  EXPECT_EQ(told("admin_api_key"), "\"\"");
}

}  // namespace
}  // namespace levada::serve
