// Every option is reachable by name and reaches whom it is for.
#include "serve/options.h"

#include <gtest/gtest.h>

#include "serve/api.h"

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
                                                        {"max_body_bytes", "2048"},
                                                        {"max_batch_prompts", "3"},
                                                        {"health_timeout_s", "4"}};
  for (const auto& [name, value] : values) EXPECT_TRUE(table.set("serve", name, value).ok()) << name;
  EXPECT_EQ(table.options().size(), std::size(values)) << "an option without a test";
  EXPECT_EQ(options.chat_template, "t.jinja");
  EXPECT_EQ(options.max_batch_prompts, 3);
  EXPECT_FALSE(table.set("serve", "port", "70000").ok());
  EXPECT_FALSE(table.set("serve", "max_body_bytes", "1").ok());

  const http::ServerOptions http = http_options(options);
  EXPECT_EQ(http.host, "::1");
  EXPECT_EQ(http.port, 0);
  EXPECT_EQ(http.max_body_bytes, 2048u);
  EXPECT_EQ(arguments_of(table).front(), (std::pair<std::string, std::string>{"host", "::1"}));
}

}  // namespace
}  // namespace levada::serve
