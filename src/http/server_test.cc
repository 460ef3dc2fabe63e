// What a client of a running server sees: responses, streams, pipelining, errors.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "http/client.h"
#include "http/server_fixture.h"

namespace levada::http {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(BearerToken, IsWhatFollowsTheSchemeWhateverItsCase) {
  const auto token_of = [](const char* header) {
    Request request;
    if (header != nullptr) request.headers["authorization"] = header;
    return std::string(bearer_token(request));
  };
  EXPECT_EQ(token_of("Bearer abc"), "abc");
  EXPECT_EQ(token_of("bEARER a b"), "a b");
  for (const char* none : {static_cast<const char*>(nullptr), "", "abc", "Bearer", "Bearer ", "Basic abc"}) {
    EXPECT_EQ(token_of(none), "");
  }
}

TEST_F(ServerTest, answers_a_whole_response_and_keeps_the_connection) {
  RawSocket socket(site.port());
  for (int i = 0; i < 3; ++i) {
    socket.send(kHello);
    const std::string answer = socket.read_until("hello");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  }
}

TEST_F(ServerTest, a_request_may_be_cut_at_every_byte) {
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n";
  RawSocket socket(site.port());
  for (std::size_t cut = 1; cut < request.size(); ++cut) {
    ASSERT_TRUE(socket.send(request.substr(0, cut)));
    // The answer to a whole request in between proves that the first part was read on its own.
    RawSocket other(site.port());
    other.send(kHello);
    other.read_until("hello");
    ASSERT_TRUE(socket.send(request.substr(cut)));
    EXPECT_THAT(socket.read_until("abcdef"), HasSubstr("200 OK")) << cut;
  }
}

TEST_F(ServerTest, pipelined_requests_are_answered_in_order_even_if_the_first_takes_longest) {
  RawSocket socket(site.port());
  socket.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /stream HTTP/1.1\r\nHost: h\r\n\r\n" + std::string(kHello));
  take_parked().respond(200, "text/plain", "first");
  const std::string answers = socket.read_until("hello");
  EXPECT_LT(answers.find("first"), answers.find("data: 1"));
  EXPECT_LT(answers.find("0\r\n\r\n"), answers.find("hello"));
}

TEST_F(ServerTest, ten_thousand_pipelined_requests_get_ten_thousand_answers) {
  constexpr int kCount = 10'000;
  RawSocket socket(site.port());
  Thread sender("sender", [&] {
    for (int i = 0; i < kCount; ++i) ASSERT_TRUE(socket.send(kHello));
  });
  EXPECT_EQ(RawSocket::count(socket.read_until("\r\n\r\nhello", kCount), "\r\n\r\nhello"), kCount);
}

TEST_F(ServerTest, streams_are_chunked_and_http_1_0_gets_them_until_close) {
  EXPECT_THAT(raw("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"),
              HasSubstr("\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"));
  const std::string old = raw("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old, HasSubstr("Connection: close\r\n\r\ndata: 1\n\ndata: 2\n\n"));
  EXPECT_THAT(old, Not(HasSubstr("Transfer-Encoding")));
}

TEST_F(ServerTest, head_gets_the_head_alone) {
  const std::string answers = raw("HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(answers, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(answers, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(answers, Not(HasSubstr("hello")));
  EXPECT_THAT(answers, Not(HasSubstr("data:")));
  EXPECT_EQ(RawSocket::count(answers, "200 OK"), 2);
}

TEST_F(ServerTest, options_lists_what_is_allowed) {
  EXPECT_THAT(raw("OPTIONS /hello HTTP/1.1\r\nHost: h\r\n\r\n"),
              testing::AllOf(HasSubstr("204 No Content"), HasSubstr("\r\nAllow: OPTIONS, GET, HEAD\r\n")));
  EXPECT_THAT(raw("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), HasSubstr("204 No Content"));
}

TEST_F(ServerTest, unknown_path_is_404_and_another_method_405_with_allow) {
  EXPECT_THAT(
      raw("GET /nowhere\" HTTP/1.1\r\nHost: h\r\n\r\n"),
      testing::AllOf(HasSubstr("404 Not Found"), HasSubstr(R"({"error":{"message":"there is nothing at /nowhere\"")")));
  EXPECT_THAT(raw("DELETE /hello HTTP/1.1\r\nHost: h\r\n\r\n"),
              testing::AllOf(HasSubstr("405 Method Not Allowed"), HasSubstr("Allow: OPTIONS, GET, HEAD\r\n")));
}

TEST_F(ServerTest, a_dropped_responder_and_a_throwing_handler_get_500_and_the_server_lives) {
  const std::string answers =
      raw("GET /drop HTTP/1.1\r\nHost: h\r\n\r\nGET /throw HTTP/1.1\r\nHost: h\r\n\r\n" + std::string(kHello));
  EXPECT_EQ(RawSocket::count(answers, "500 Internal Server Error"), 2);
  EXPECT_THAT(answers, HasSubstr("\r\n\r\nhello"));
  EXPECT_EQ(site.responses(500), 2);
}

TEST_F(ServerTest, a_responder_dropped_on_another_thread_gets_500_too) {
  RawSocket socket(site.port());
  socket.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  { const Responder dropped = take_parked(); }
  EXPECT_THAT(socket.read_until("}}"), HasSubstr("500"));
}

TEST_F(ServerTest, a_stream_its_handler_leaves_unfinished_ends_without_its_last_chunk) {
  RawSocket socket(site.port());
  socket.send("GET /throw-late HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string answer = socket.read_all();
  EXPECT_THAT(answer, testing::EndsWith("4\r\npart\r\n"));
  EXPECT_TRUE(socket.ended());
}

TEST_F(ServerTest, calls_out_of_turn_do_nothing) {
  RawSocket socket(site.port());
  socket.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  const Responder out = take_parked();
  out.write("too early");
  out.end();
  out.respond(200, "text/plain", "once");
  out.respond(500, "text/plain", "twice");
  out.start_stream(200, "text/plain");
  out.write("late");
  socket.send(kHello);
  const std::string answers = socket.read_until("hello");
  EXPECT_THAT(answers, testing::AllOf(HasSubstr("once"), Not(HasSubstr("twice")), Not(HasSubstr("early")),
                                      Not(HasSubstr("late"))));
}

TEST_F(ServerTest, expect_continue_is_answered_before_the_body_and_refused_when_in_vain) {
  RawSocket socket(site.port());
  socket.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(socket.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.send("body");
  EXPECT_THAT(socket.read_until("body"), HasSubstr("200 OK"));

  RawSocket refused(site.port());
  refused.send("POST /nowhere HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_THAT(refused.read_all(), testing::AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("Connection: close")));
}

TEST_F(ServerTest, who_did_not_ask_or_did_not_wait_or_has_no_body_gets_no_continue) {
  for (const char* request : {
           "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
           "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
           "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
           "POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
       }) {
    EXPECT_THAT(raw(request), StartsWith("HTTP/1.1 200 OK")) << request;
  }
  RawSocket trickling(site.port());
  trickling.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
  raw(kHello);  // the head was read on its own
  trickling.send("body");
  EXPECT_THAT(trickling.read_until("body"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(ServerTest, pipelined_requests_are_held_back_while_answers_wait_and_all_are_answered) {
  constexpr int kCount = 400;
  std::string requests;
  for (int i = 0; i < kCount; ++i) requests += "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
  RawSocket socket(site.port());
  socket.send(requests);
  socket.half_close();
  EXPECT_EQ(RawSocket::count(socket.read_all(), "200 OK"), kCount) << "40 MiB, of which 8 may wait";
}

TEST_F(ServerTest, a_thousand_streams_are_served_side_by_side) {
  constexpr int kStreams = 1000, kEvents = 20;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &files);

  std::vector<std::unique_ptr<RawSocket>> sockets;
  std::vector<Responder> streams;
  for (int i = 0; i < kStreams; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(site.port()));
    ASSERT_TRUE(sockets.back()->send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    streams.push_back(take_parked());
    streams.back().start_stream(200, "text/event-stream");
  }
  for (int event = 0; event < kEvents; ++event)
    for (const Responder& stream : streams) stream.write("data: " + std::to_string(event) + "\n\n");
  for (const Responder& stream : streams) stream.end();
  for (auto& socket : sockets) {
    const std::string body = socket->read_until("0\r\n\r\n");
    EXPECT_EQ(RawSocket::count(body, "data: "), kEvents);
    EXPECT_THAT(body, HasSubstr("data: 19\n\n"));
  }
}

TEST_F(ServerTest, writes_of_one_turn_reach_the_client_together) {
  RawSocket socket(site.port());
  socket.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  const Responder out = take_parked();
  site.server->post([out] {
    out.start_stream(200, "text/event-stream");
    for (int i = 0; i < 100; ++i) out.write("data: x\n\n");
    EXPECT_GT(out.pending_bytes(), 100 * std::string("data: x\n\n").size()) << "nothing leaves during the turn";
    out.end();
  });
  EXPECT_EQ(RawSocket::count(socket.read_until("0\r\n\r\n"), "data: x"), 100);
}

TEST_F(ServerTest, bodies_of_megabytes_go_both_ways) {
  const std::string body(8 << 20, 'b');
  Client client("127.0.0.1", site.port());
  const Result<ClientResponse> answer = client.request({.method = "POST", .target = "/echo", .body = body});
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_TRUE(answer->body == body);
}

TEST_F(ServerTest, counters_name_only_known_routes) {
  raw("GET /nowhere-1 HTTP/1.1\r\nHost: h\r\n\r\nGET /nowhere-2 HTTP/1.1\r\nHost: h\r\n\r\n" + std::string(kHello));
  const std::string text = site.metrics.render();
  EXPECT_THAT(text, HasSubstr("sglang:http_requests_total{endpoint=\"/hello\",method=\"GET\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sglang:http_requests_total{endpoint=\"other\",method=\"other\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("sglang:http_responses_total{status_code=\"404\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("nowhere")));
}

}  // namespace
}  // namespace levada::http
