#include "http/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace levada::http {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Text, percent_decoding_wants_two_hex_digits_behind_each_percent) {
  EXPECT_EQ(percent_decode("a%20b%2Fc%c3%A9", false), "a b/c\xc3\xa9");
  EXPECT_EQ(percent_decode("a+b", false), "a+b");
  EXPECT_EQ(percent_decode("a+b", true), "a b");
  for (const char* bad : {"%", "%2", "a%2", "%zz", "%2g", "%%20"})
    EXPECT_EQ(percent_decode(bad, false), std::nullopt) << bad;
}

TEST(Text, a_query_keeps_the_last_value_of_a_name) {
  using Query = std::map<std::string, std::string>;
  EXPECT_EQ(parse_query("a=1&b=x%26y&&a=2&c&d="), (Query{{"a", "2"}, {"b", "x&y"}, {"c", ""}, {"d", ""}}));
  EXPECT_EQ(parse_query(""), Query{});
  EXPECT_EQ(parse_query("a=%q"), std::nullopt);
}

RC_GTEST_PROP(TextProperty, percent_encoding_every_byte_is_undone, (const std::string& text)) {
  std::string encoded;
  for (const char c : text) {
    char buffer[4];
    std::snprintf(buffer, sizeof buffer, "%%%02x", static_cast<unsigned char>(c));
    encoded += buffer;
  }
  RC_ASSERT(percent_decode(encoded, true) == text);
}

TEST(Text, an_error_says_by_its_type_whose_fault_it_is) {
  for (const int status : {400, 405, 408, 414, 417, 431, 501, 505})
    EXPECT_EQ(error_type(status), "invalid_request_error") << status;
  EXPECT_EQ(error_type(413), "PayloadTooLargeError");
  EXPECT_EQ(error_type(429), "rate_limit_error");
  EXPECT_EQ(error_type(500), "internal_server_error");
  EXPECT_EQ(error_type(503), "service_unavailable_error");
}

TEST(Text, an_error_body_is_json_whatever_the_message_holds) {
  EXPECT_EQ(error_body(404, "nothing at /\"\\\n\xff"),
            R"({"error":{"message":"nothing at /\"\\??","type":"not_found_error","param":null,"code":404}})");
  EXPECT_THAT(error_body(500, "x"), HasSubstr("internal_server_error"));
}

TEST(Text, heads_announce_how_the_body_ends) {
  std::string head;
  append_head(head, {.status = 200, .content_type = "text/plain", .content_length = 5});
  EXPECT_THAT(head, testing::StartsWith("HTTP/1.1 200 OK\r\nDate: "));
  EXPECT_THAT(head,
              HasSubstr(" GMT\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n"));
  head.clear();
  append_head(head, {.status = 204});
  EXPECT_THAT(head, Not(HasSubstr("Content-Length")));
  head.clear();
  append_head(head, {.status = 200, .framing = BodyFraming::kChunked, .keep_alive = false});
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"));
}

TEST(Text, chunks_carry_their_length_in_hex) {
  std::string out;
  append_chunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
  EXPECT_DEATH(append_chunk(out, ""), "end the body");
}

}  // namespace
}  // namespace levada::http
