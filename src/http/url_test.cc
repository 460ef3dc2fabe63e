#include "http/url.h"

#include <gtest/gtest.h>

namespace levada::http {
namespace {

TEST(HttpUrlTest, HostAndPortAreRead) {
  const auto url = parse_http_url("http://127.0.0.1:30000");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, 30000);
  EXPECT_EQ(parse_http_url("http://node-7:1/")->host, "node-7");
}

TEST(HttpUrlTest, EverythingElseIsRefusedByName) {
  for (const char* url : {"", "host:1", "https://host:1", "http://host", "http://:1", "http://host:", "http://host:0",
                          "http://host:65536", "http://host:1x", "http://a@host:1", "http://host:1/path",
                          "http://host:1?q", "http://ho st:1"}) {
    const auto parsed = parse_http_url(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_NE(parsed.status().message().find(std::string("\"") + url + "\""), std::string::npos) << url;
  }
}

}  // namespace
}  // namespace levada::http
