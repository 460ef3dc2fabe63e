// Which web pages may use which routes: what a browser needs to be told, and what it would do unasked.
#include <gmock/gmock.h>

#include "http/server.h"
#include "http/test_socket.h"

namespace levada::http {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// /public is for pages of any origin, /private for the server's own; /mixed has a method of each kind.
class CrossOriginTest : public testing::Test {
 protected:
  explicit CrossOriginTest(const std::string& allow_origin = "*") : site({.allow_origin = allow_origin}) {
    const auto handler = [this](Request, Responder out) {
      ++handled;
      out.respond(200, "text/plain", "done");
    };
    site.server->route("POST", "/public", handler, Origins::kAny);
    site.server->route("POST", "/private", handler);
    site.server->route("GET", "/private", handler);
    site.server->route("GET", "/mixed", handler, Origins::kAny);
    site.server->route("POST", "/mixed", handler, Origins::kOwn);
    site.start();
  }

  std::string ask(const std::string& method, const std::string& path, const std::string& lines = "") {
    RawSocket socket(site.port());
    socket.send(method + " " + path + " HTTP/1.1\r\nHost: here:30000\r\nConnection: close\r\n" + lines + "\r\n");
    return socket.read_all();
  }

  std::atomic<int> handled = 0;
  TestServer site;
};

const std::string kElsewhere = "Origin: https://elsewhere.example\r\n";

TEST_F(CrossOriginTest, pages_of_any_origin_may_use_a_public_route_and_read_its_answers) {
  EXPECT_THAT(ask("POST", "/public", kElsewhere),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\r\nAccess-Control-Allow-Origin: *\r\n")));
  EXPECT_THAT(ask("OPTIONS", "/public", kElsewhere + "Access-Control-Request-Method: POST\r\n"),
              AllOf(StartsWith("HTTP/1.1 204"), HasSubstr("\r\nAccess-Control-Allow-Origin: *\r\n"),
                    HasSubstr("\r\nAccess-Control-Allow-Methods: OPTIONS, POST\r\n"),
                    HasSubstr("\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, *\r\n")));
  EXPECT_THAT(ask("GET", "/public", kElsewhere), AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Access-Control")));
  EXPECT_THAT(ask("GET", "/nowhere", kElsewhere), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("Access-Control")));
}

TEST_F(CrossOriginTest, a_private_route_gives_no_other_page_leave) {
  EXPECT_THAT(ask("OPTIONS", "/private", kElsewhere + "Access-Control-Request-Method: POST\r\n"),
              AllOf(StartsWith("HTTP/1.1 204"), HasSubstr("\r\nAllow: OPTIONS, GET, HEAD, POST\r\n"),
                    Not(HasSubstr("Access-Control"))));
  EXPECT_THAT(ask("POST", "/private"), AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("Access-Control"))));
  EXPECT_THAT(ask("DELETE", "/private"), AllOf(StartsWith("HTTP/1.1 405"), Not(HasSubstr("Access-Control"))));
}

// A browser sends these without asking first, and would only withhold the answer.
TEST_F(CrossOriginTest, a_simple_request_of_another_page_never_reaches_a_private_route) {
  const std::string form = "Content-Type: text/plain\r\nContent-Length: 0\r\n";
  for (const std::string& lines :
       {kElsewhere, std::string("Origin: null\r\n"), std::string("Origin: http://here:30001\r\n"),
        std::string("Sec-Fetch-Site: cross-site\r\n"), std::string("Sec-Fetch-Site: same-site\r\n")}) {
    EXPECT_THAT(ask("POST", "/private", form + lines),
                AllOf(StartsWith("HTTP/1.1 403"), Not(HasSubstr("Access-Control"))));
    EXPECT_THAT(ask("GET", "/private", lines), StartsWith("HTTP/1.1 403")) << lines;
    EXPECT_THAT(ask("HEAD", "/private", lines), StartsWith("HTTP/1.1 403")) << lines;
  }
  EXPECT_EQ(handled, 0);
}

TEST_F(CrossOriginTest, our_own_page_the_address_bar_and_clients_that_are_no_browser_reach_a_private_route) {
  for (const char* lines : {"", "Origin: http://here:30000\r\n", "Sec-Fetch-Site: same-origin\r\n",
                            "Sec-Fetch-Site: none\r\n", "Sec-Fetch-Site: same-origin\r\nOrigin: https://proxied\r\n"}) {
    EXPECT_THAT(ask("GET", "/private", lines), StartsWith("HTTP/1.1 200")) << lines;
  }
}

TEST_F(CrossOriginTest, leave_is_given_for_the_public_methods_of_a_path_alone) {
  EXPECT_THAT(ask("OPTIONS", "/mixed", kElsewhere),
              AllOf(HasSubstr("\r\nAllow: OPTIONS, GET, HEAD, POST\r\n"),
                    HasSubstr("\r\nAccess-Control-Allow-Methods: OPTIONS, GET, HEAD\r\n")));
  EXPECT_THAT(ask("GET", "/mixed", kElsewhere), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("POST", "/mixed", kElsewhere), StartsWith("HTTP/1.1 403"));
}

class NoOriginTest : public CrossOriginTest {
 protected:
  NoOriginTest() : CrossOriginTest("") {}
};

TEST_F(NoOriginTest, without_an_allowed_origin_no_page_is_given_leave) {
  for (const char* path : {"/public", "/private", "/nowhere"}) {
    EXPECT_THAT(ask("POST", path), Not(HasSubstr("Access-Control")));
    EXPECT_THAT(ask("OPTIONS", path), Not(HasSubstr("Access-Control")));
  }
}

}  // namespace
}  // namespace levada::http
