// Text written by hand must be JSON that any parser reads back.
#include "serve/json_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

namespace levada::serve {
namespace {

RC_GTEST_PROP(JsonText, AnyBytesBecomeAValidString, (const std::string& bytes)) {
  std::string json;
  append_json_string(json, bytes);
  RC_ASSERT(nlohmann::json::accept(json));
}

TEST(JsonText, RoundTripsEscapesAndKeepsUnicode) {
  const std::string text = "quote \" slash \\ line \n tab \t bell \x07 null " + std::string(1, '\0') + " é 😀 \x7f";
  std::string json;
  append_json_string(json, text);
  EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), text);
}

TEST(JsonText, InvalidBytesBecomeReplacementCharacters) {
  std::string json;
  append_json_string(json, "a\xff\xc3z");
  EXPECT_EQ(json, "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\"");
}

TEST(JsonText, IdsAppendToAnOpenList) {
  std::string ids;
  append_json_ids(ids, {});
  append_json_ids(ids, {1, 2});
  append_json_ids(ids, {3});
  EXPECT_EQ(ids, "1,2,3");
}

}  // namespace
}  // namespace levada::serve
