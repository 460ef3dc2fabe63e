#include "http/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada::http {
namespace {

using State = RequestReader::State;
using testing::HasSubstr;

constexpr std::size_t kHeaderLimit = 1024, kBodyLimit = 100;

struct Outcome {
  State state = State::kNeedMore;
  int status = 0;
  std::string message;
  Request request;
  bool keep_alive = false;
  std::size_t left_over = 0;
};

// Feeds `bytes` in pieces of `piece` bytes, as a connection does: what was not taken comes again.
Outcome read(std::string_view bytes, std::size_t piece = 1 << 20) {
  RequestReader reader(kHeaderLimit, kBodyLimit);
  Outcome outcome;
  std::string held;
  while (outcome.state != State::kDone && outcome.state != State::kFailed && !bytes.empty()) {
    held += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    do {
      std::size_t consumed = 0;
      outcome.state = reader.read(held, consumed);
      held.erase(0, consumed);
    } while (outcome.state == State::kHeaderDone);
  }
  outcome.left_over = held.size() + bytes.size();
  outcome.status = reader.failure().status;
  outcome.message = reader.failure().message;
  outcome.request = reader.request();
  if (outcome.state == State::kDone) outcome.keep_alive = reader.keep_alive();
  return outcome;
}

int refusal(std::string_view bytes) {
  const Outcome outcome = read(bytes);
  EXPECT_EQ(outcome.state, State::kFailed) << bytes;
  EXPECT_FALSE(outcome.message.empty());
  return outcome.status;
}

constexpr std::string_view kChunkedPost =
    "POST /a%20b/c?x=1&y=%26 HTTP/1.1\r\nHost: h\r\nX-Twice: a\r\nX-Twice: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: t\r\n\r\n";

TEST(RequestReader, reads_the_same_request_however_it_is_cut) {
  for (std::size_t piece = 1; piece <= kChunkedPost.size(); ++piece) {
    const Outcome outcome = read(kChunkedPost, piece);
    ASSERT_EQ(outcome.state, State::kDone) << piece;
    EXPECT_EQ(outcome.request.method, "POST");
    EXPECT_EQ(outcome.request.path, "/a b/c");
    EXPECT_EQ(outcome.request.query.at("y"), "&");
    EXPECT_EQ(outcome.request.headers.at("x-twice"), "a, b");
    EXPECT_FALSE(outcome.request.headers.contains("trailer"));
    EXPECT_EQ(outcome.request.body, "hello world");
    EXPECT_TRUE(outcome.keep_alive);
  }
}

TEST(RequestReader, leaves_the_next_request_alone) {
  const Outcome outcome = read("\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nokGET / HTTP/1.1\r\n");
  EXPECT_EQ(outcome.request.body, "ok");
  EXPECT_EQ(outcome.left_over, std::string("GET / HTTP/1.1\r\n").size());
}

TEST(RequestReader, keep_alive_follows_version_and_connection_header) {
  EXPECT_TRUE(read("GET / HTTP/1.1\r\nHost: h\r\n\r\n").keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
}

TEST(RequestReader, absolute_targets_lose_scheme_and_host) {
  EXPECT_EQ(read("GET http://h:1/p?q=1#f HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/p");
  EXPECT_EQ(read("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
}

TEST(RequestReader, refuses_what_is_malformed) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(refusal("\x16\x03\x01\x02\x00 hello over TLS\r\n"), 400);
  EXPECT_EQ(refusal("GET / FOOBAR/1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\nHost: h\n\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET /?a=%2 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET x HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Content-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Content-Length: 1x\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Content-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(refusal(head + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"), 400);
}

TEST(RequestReader, refuses_what_two_readers_could_understand_differently) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(refusal(head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), 400);
  EXPECT_EQ(refusal(head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"), 400);
  EXPECT_EQ(refusal(head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(refusal(head + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
}

TEST(RequestReader, refuses_methods_versions_and_expectations_it_does_not_know) {
  EXPECT_EQ(refusal("BREW / HTTP/1.1\r\nHost: h\r\n\r\n"), 501);
  for (const std::string method : {"TRACE", "QUERY"}) {  // known, if served nowhere: the router says 405
    EXPECT_EQ(read(method + " / HTTP/1.1\r\nHost: h\r\n\r\n").state, State::kDone);
  }
  EXPECT_EQ(refusal("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"), 501);
  EXPECT_EQ(refusal("GET / HTTP/3.0\r\nHost: h\r\n\r\n"), 505);
  EXPECT_EQ(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: h\r\nExpect: magic\r\n\r\n"), 417);
}

TEST(RequestReader, bounds_line_header_and_body) {
  const std::string filler(kHeaderLimit, 'x');
  EXPECT_EQ(refusal("GET /" + filler + " HTTP/1.1\r\nHost: h\r\n\r\n"), 414);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: h\r\nX: " + filler + "\r\n\r\n"), 431);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"), 413);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3c\r\n" + std::string(60, 'x') +
                    "\r\n3c\r\n"),
            413);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;" + filler), 431);
}

TEST(RequestReader, a_body_of_exactly_the_limit_is_accepted_and_one_byte_more_is_refused_with_the_limit) {
  const auto sized = [](std::size_t bytes) {
    return "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
           std::string(bytes, 'x');
  };
  const auto chunked = [](std::size_t bytes) {
    std::string request = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (std::size_t i = 0; i < bytes; ++i) request += "1\r\nx\r\n";
    return request + "0\r\n\r\n";
  };
  for (const std::size_t piece : {1, 7, 10'000}) {
    for (const std::string& most : {sized(kBodyLimit), chunked(kBodyLimit)}) {
      const Outcome outcome = read(most, piece);
      ASSERT_EQ(outcome.state, State::kDone) << outcome.message;
      EXPECT_EQ(outcome.request.body.size(), kBodyLimit);
    }
    for (const std::string& more : {sized(kBodyLimit + 1), chunked(kBodyLimit + 1)}) {
      const Outcome outcome = read(more, piece);
      EXPECT_EQ(outcome.status, 413);
      EXPECT_EQ(outcome.message, "the request body is longer than the limit of 100 bytes");
    }
  }
}

TEST(RequestReader, bounds_a_header_that_trickles_in_as_many_small_fields) {
  std::string bytes = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 200; ++i) bytes += "X-" + std::to_string(i) + ": y\r\n";
  for (const std::size_t piece : {1, 7, 64, 10'000}) {
    const Outcome outcome = read(bytes, piece);
    EXPECT_EQ(outcome.state, State::kFailed) << piece;
    EXPECT_EQ(outcome.status, 431);
    EXPECT_THAT(outcome.message, HasSubstr("1024 bytes"));
  }
}

}  // namespace
}  // namespace levada::http
