#include "cli/banner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Banner, AServerWithoutAKeyIsShownWithoutOne) {
  const std::string text = ready_text({.host = "127.0.0.1", .port = 30000, .model = "smollm2", .chat = true});
  EXPECT_THAT(text, AllOf(HasSubstr("curl -N http://127.0.0.1:30000/v1/chat/completions"),
                          HasSubstr("\"model\": \"smollm2\""), HasSubstr("api_key=\"none\"")));
  EXPECT_THAT(text, Not(HasSubstr("Authorization")));
}

TEST(Banner, AServerWithAKeyShowsWhereTheKeyGoes) {
  for (const bool chat : {true, false}) {
    const std::string text = ready_text({.host = "h", .port = 1, .model = "m", .chat = chat, .key_needed = true});
    EXPECT_THAT(text, HasSubstr("-H 'Authorization: Bearer YOUR_API_KEY'"));
    EXPECT_EQ(text.find("api_key=\"YOUR_API_KEY\"") != std::string::npos, chat);
  }
}

TEST(Banner, AModelNameCannotEndTheQuotesItStandsIn) {
  const std::string text = ready_text({.host = "h", .port = 1, .model = "it's \"m\"", .chat = true});
  EXPECT_THAT(text, HasSubstr(R"("model": "it'\''s \"m\"")"));
  EXPECT_THAT(text, HasSubstr(R"(model="it's \"m\"",)"));
}

TEST(Banner, TheUrlCanBeOpenedWhateverTheServerListensOn) {
  EXPECT_THAT(ready_text({.host = "0.0.0.0", .port = 7}), HasSubstr("http://127.0.0.1:7 "));
  EXPECT_THAT(ready_text({.host = "::1", .port = 7}), HasSubstr("http://[::1]:7 "));
}

}  // namespace
}  // namespace levada::cli
