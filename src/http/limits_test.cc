#include <gmock/gmock.h>

#include <random>

#include "http/server.h"
#include "http/test_socket.h"

namespace levada::http {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kHello = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

class LimitsTest : public testing::Test {
 protected:
  LimitsTest()
      : site({.max_body_bytes = 1000,
              .max_header_bytes = 2000,
              .read_timeout = std::chrono::milliseconds(200),
              .idle_timeout = std::chrono::milliseconds(400)}) {
    site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
    site.server->route("POST", "/echo", [](Request in, Responder out) { out.respond(200, "text/plain", in.body); });
    site.start();
  }

  // What the server says before it closes, and that the next plain request works.
  std::string refusal(std::string_view bytes) {
    RawSocket socket(site.port());
    socket.send(bytes);
    const std::string answer = socket.read_all();
    EXPECT_TRUE(socket.ended());
    RawSocket next(site.port());
    next.send(kHello);
    EXPECT_THAT(next.read_until("hello"), HasSubstr("200 OK"));
    return answer;
  }
  static auto is_error(const std::string& status_line) {
    return AllOf(StartsWith("HTTP/1.1 " + status_line), HasSubstr("Connection: close\r\n"),
                 HasSubstr(R"({"error":{"message":)"), EndsWith("}}"));
  }

  TestServer site;
};

TEST_F(LimitsTest, a_request_over_a_limit_is_answered_with_its_status_and_the_connection_closes) {
  const std::string post = "POST /echo HTTP/1.1\r\nHost: h\r\n";
  EXPECT_THAT(refusal("GET / HTTP/1.1\r\nX: " + std::string(3000, 'x') + "\r\n\r\n"), is_error("431 "));
  EXPECT_THAT(refusal("GET /" + std::string(9000, 'x') + " HTTP/1.1\r\n\r\n"), is_error("414 "));
  EXPECT_THAT(refusal(post + "Content-Length: 1001\r\n\r\n" + std::string(1001, 'x')), is_error("413 "));
  EXPECT_THAT(refusal(post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), is_error("400 "));
  EXPECT_THAT(refusal(post + "Transfer-Encoding: gzip\r\n\r\n"), is_error("501 "));
  EXPECT_THAT(refusal("BREW / HTTP/1.1\r\nHost: h\r\n\r\n"), is_error("501 "));
  EXPECT_THAT(refusal("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), is_error("505 "));
  EXPECT_THAT(refusal("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n"), is_error("400 "));
  EXPECT_THAT(refusal("nonsense\r\n\r\n"), is_error("400 "));
}

TEST_F(LimitsTest, a_body_far_over_the_limit_still_gets_its_answer_read) {
  RawSocket socket(site.port());
  socket.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n");
  Thread sender("sender", [&] { socket.send(std::string(4'000'000, 'x')); });
  EXPECT_THAT(socket.read_all(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(LimitsTest, a_request_that_trickles_in_is_answered_408) {
  RawSocket socket(site.port());
  socket.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_THAT(socket.read_all(), is_error("408 "));
}

TEST_F(LimitsTest, a_request_cut_short_by_the_client_is_answered_400) {
  RawSocket socket(site.port());
  socket.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  socket.half_close();
  EXPECT_THAT(socket.read_all(), is_error("400 "));
}

TEST_F(LimitsTest, an_idle_connection_is_closed_without_a_word) {
  RawSocket fresh(site.port()), used(site.port());
  used.send(kHello);
  used.read_until("hello");
  EXPECT_EQ(fresh.read_all(), "");
  EXPECT_EQ(used.read_all(), "");
  EXPECT_TRUE(fresh.ended() && used.ended());
}

TEST(ConnectionLimit, who_comes_when_all_connections_are_in_use_gets_503_until_one_is_free) {
  TestServer site({.max_connections = 2});
  site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
  site.start();
  RawSocket first(site.port());
  auto second = std::make_unique<RawSocket>(site.port());
  for (RawSocket* socket : {&first, second.get()}) {
    socket->send(kHello);
    ASSERT_THAT(socket->read_until("hello"), HasSubstr("200 OK"));
  }
  RawSocket third(site.port());
  const std::string answer = third.read_all();
  EXPECT_TRUE(third.ended());
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Connection: close\r\n"),
                            HasSubstr("all of this server's 2 connections are in use")));
  first.send(kHello);
  EXPECT_THAT(first.read_until("hello"), HasSubstr("200 OK")) << "who is in stays in";
  second->reset();
  std::string last;
  for (int i = 0; i < 1000 && last.find("200 OK") == last.npos; ++i) {  // until the server has seen the reset
    RawSocket again(site.port());
    again.send(kHello);
    last = again.read_until("hello");
  }
  EXPECT_THAT(last, HasSubstr("200 OK"));
}

TEST(SlowReader, an_answer_that_nobody_takes_is_given_up_after_the_read_timeout) {
  TestServer site(
      {.read_timeout = std::chrono::milliseconds(200), .max_pending_bytes = 64u << 20, .max_connections = 1});
  site.server->route("GET", "/big", [](Request, Responder out) {
    out.respond(200, "text/plain", std::string(32u << 20, 'x'));  // more than any socket buffer takes
  });
  site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
  site.start();
  RawSocket deaf(site.port());
  deaf.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_THAT(deaf.read_until("\r\n\r\n"), HasSubstr("200 OK"));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string answer;
  while (answer.find("200 OK") == answer.npos && std::chrono::steady_clock::now() < patience) {
    RawSocket next(site.port());  // turned away for as long as the deaf client has the only place
    next.send(kHello);
    answer = next.read_until("hello");
  }
  EXPECT_THAT(answer, HasSubstr("200 OK"));
}

// Two thousand connections of seeded noise, half of it a valid request with some bytes changed: the server answers or
// closes, and serves the next one.
TEST_F(LimitsTest, random_bytes_never_hang_or_end_it) {
  std::mt19937 random(20261129);
  const auto below = [&](std::size_t bound) { return random() % bound; };
  const std::string valid =
      "POST /echo?a=%20b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
      "5;x=y\r\nhello\r\n0\r\nT: u\r\n\r\nGET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = valid;
    if (i % 2 == 0) {
      bytes.resize(below(300));
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
        const std::size_t at = below(bytes.size());
        if (below(3) == 0)
          bytes.erase(at, below(20));
        else if (below(2) == 0)
          bytes.insert(at, bytes.substr(below(bytes.size()), below(20)));
        else
          bytes[at] = static_cast<char>(random());
        if (bytes.empty()) bytes = "x";
      }
    }
    RawSocket socket(site.port());
    ASSERT_TRUE(socket.connected());
    const std::size_t cut = below(bytes.size() + 1);
    socket.send(bytes.substr(0, cut));
    socket.send(bytes.substr(cut));
    if (below(8) == 0) {
      socket.reset();
      continue;
    }
    socket.half_close();
    socket.read_all();
    ASSERT_TRUE(socket.ended()) << "seeded connection " << i << " was left hanging";
  }
  EXPECT_THAT(refusal("last\r\n\r\n"), is_error("400 "));
}

}  // namespace
}  // namespace levada::http
