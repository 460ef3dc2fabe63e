#include "http/server.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <stdexcept>

#include "http/client.h"
#include "http/test_socket.h"

namespace levada::http {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::string_view kHello = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

// Routes most tests need; /later parks its Responder until the test answers from its own thread.
class ServerTest : public testing::Test {
 protected:
  explicit ServerTest(ServerOptions options = {}) : site(options) {
    site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
    site.server->route("POST", "/echo", [](Request in, Responder out) { out.respond(200, "text/plain", in.body); });
    site.server->route("GET", "/stream", [](Request, Responder out) {
      out.start_stream(200, "text/event-stream");
      for (const char* event : {"data: 1\n\n", "data: 2\n\n"}) out.write(event);
      out.end();
    });
    site.server->route("GET", "/later", [this](Request, Responder out) { park(std::move(out)); });
    site.server->route("GET", "/drop", [](Request, Responder) {});
    site.server->route("GET", "/throw", [](Request, Responder) { throw std::runtime_error("no luck"); });
    site.server->route("GET", "/throw-late", [](Request, Responder out) {
      out.start_stream(200, "text/plain");
      out.write("part");
      throw std::runtime_error("no luck");
    });
    site.start();
  }

  void park(Responder out) {
    std::lock_guard lock(mutex_);
    parked_.push_back(std::move(out));
    changed_.notify_all();
  }
  Responder take_parked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !parked_.empty(); });
    Responder out = std::move(parked_.front());
    parked_.pop_front();
    return out;
  }
  std::string raw(std::string_view bytes) {
    RawSocket socket(site.port());
    socket.send(bytes);
    socket.half_close();
    return socket.read_all();
  }

  TestServer site;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Responder> parked_;
};

TEST_F(ServerTest, answers_a_whole_response_and_keeps_the_connection) {
  RawSocket socket(site.port());
  for (int i = 0; i < 3; ++i) {
    socket.send(kHello);
    const std::string answer = socket.read_until("hello");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
    EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Origin: *\r\n"));
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
              testing::AllOf(HasSubstr("204 No Content"), HasSubstr("\r\nAllow: OPTIONS, GET, HEAD\r\n"),
                             HasSubstr("Access-Control-Allow-Methods: OPTIONS, GET, HEAD\r\n")));
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
  site.server->post([this] {});  // the server runs
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

TEST_F(ServerTest, posted_jobs_run_in_order_on_the_io_thread_and_delayed_ones_after_their_delay) {
  std::vector<int> order;
  std::mutex mutex;
  std::condition_variable done;
  const auto note = [&](int number) {
    std::lock_guard lock(mutex);
    order.push_back(number);
    done.notify_all();
  };
  site.server->post_after(std::chrono::milliseconds(30), [&] { note(4); });
  site.server->post_after(std::chrono::milliseconds(10), [&] { note(3); });
  site.server->post_after(std::chrono::hours(1), [&] { note(99); });
  site.server->post([&] { note(1); });
  site.server->post([&] { throw std::runtime_error("a job may throw"); });
  site.server->post([&] { note(2); });
  std::unique_lock lock(mutex);
  done.wait_for(lock, std::chrono::seconds(10), [&] { return order.size() == 4; });
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(ServerTest, counters_name_only_known_routes) {
  raw("GET /nowhere-1 HTTP/1.1\r\nHost: h\r\n\r\nGET /nowhere-2 HTTP/1.1\r\nHost: h\r\n\r\n" + std::string(kHello));
  const std::string text = site.metrics.render();
  EXPECT_THAT(text, HasSubstr("levada:http_requests_total{method=\"GET\",path=\"/hello\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("levada:http_requests_total{method=\"other\",path=\"other\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("levada:http_responses_total{status=\"404\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("nowhere")));
}

TEST_F(ServerTest, stop_lets_a_response_finish_within_the_grace) {
  RawSocket busy(site.port()), idle(site.port());
  idle.send(kHello);
  idle.read_until("hello");
  busy.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  const Responder out = take_parked();
  out.start_stream(200, "text/plain");
  busy.read_until("\r\n\r\n");
  site.server->stop(std::chrono::seconds(10));
  EXPECT_EQ(idle.read_all(), "") << "idle connections close at once";
  EXPECT_FALSE(RawSocket(site.port()).connected()) << "nothing new is accepted";
  out.write("the end");
  out.end();
  EXPECT_THAT(busy.read_all(), HasSubstr("the end\r\n0\r\n\r\n"));
  busy.close();
  site.stop();
}

TEST_F(ServerTest, stop_ends_streams_after_the_grace_and_their_handlers_hear_of_it) {
  RawSocket socket(site.port());
  socket.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  const Responder out = take_parked();
  bool heard = false;
  out.on_disconnect([&] { heard = true; });
  out.start_stream(200, "text/plain");
  socket.read_until("\r\n\r\n");
  site.stop(std::chrono::milliseconds(20));
  EXPECT_TRUE(heard);
  EXPECT_TRUE(out.client_gone());
  out.write("into the void");
  socket.read_all();
  EXPECT_TRUE(socket.ended());
}

TEST(Server, a_responder_may_outlive_its_server) {
  Responder kept;
  {
    TestServer site;
    std::promise<void> called;
    site.server->route("GET", "/keep", [&](Request, Responder out) {
      kept = std::move(out);
      called.set_value();
    });
    site.start();
    RawSocket socket(site.port());
    socket.send("GET /keep HTTP/1.1\r\nHost: h\r\n\r\n");
    called.get_future().wait();
  }
  kept.respond(200, "text/plain", "nobody hears this");
  EXPECT_TRUE(kept.client_gone());
}

// The client reads nothing, so that a write waits in the socket when the server ends: the connection, its socket and
// the loop then live by the Responder alone.
TEST(Server, a_responder_with_bytes_under_way_may_outlive_its_server_and_die_on_another_thread) {
  Responder kept;
  std::unique_ptr<RawSocket> socket;
  {
    TestServer site;
    std::promise<void> called;
    site.server->route("GET", "/keep", [&](Request, Responder out) {
      out.start_stream(200, "application/octet-stream");
      out.write(std::string(7 << 20, 'x'));
      kept = std::move(out);
      called.set_value();
    });
    site.start();
    socket = std::make_unique<RawSocket>(site.port(), 4096);
    socket->send("GET /keep HTTP/1.1\r\nHost: h\r\n\r\n");
    called.get_future().wait();
    socket->read_until("x");
  }
  EXPECT_TRUE(kept.client_gone());
  const Thread last("last-holder", [responder = std::move(kept)]() mutable {
    responder.write("nobody hears this");
    responder = Responder();
  });
}

TEST(Server, what_is_posted_before_run_is_queued_and_a_stop_before_run_ends_it_at_once) {
  Metrics metrics;
  const std::unique_ptr<Server> server = *Server::listen({.port = 0}, metrics);
  bool ran = false;
  server->post([&] { ran = true; });
  server->stop();
  server->run();
  EXPECT_TRUE(ran);
}

TEST(Server, a_taken_port_is_named_with_the_remedy) {
  TestServer first;
  Metrics metrics;
  const Status status = Server::listen({.port = first.port()}, metrics).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("127.0.0.1 port " + std::to_string(first.port())),
                                               HasSubstr("taken"), HasSubstr("--port")));
}

TEST(Server, an_address_that_is_not_ours_is_named_with_the_remedy) {
  Metrics metrics;
  const Status elsewhere = Server::listen({.host = "192.0.2.1", .port = 0}, metrics).status();
  EXPECT_EQ(elsewhere.code(), StatusCode::kUnavailable);
  EXPECT_THAT(elsewhere.message(), HasSubstr("--host"));
  EXPECT_EQ(Server::listen({.host = "not an address", .port = 0}, metrics).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Server, running_out_of_descriptors_neither_stops_nor_spins_it) {
  TestServer site;
  site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
  site.start();
  RawSocket before(site.port());
  before.send(kHello);
  before.read_until("hello");

  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  RawSocket waiting(site.port());
  waiting.send(kHello);
  waiting.read_until("hello");
  // From here on no descriptor can be made; the client's socket exists already, the server's does not.
  const Fd unconnected(::socket(AF_INET, SOCK_STREAM, 0));
  const rlimit none{static_cast<rlim_t>(unconnected.get() + 1), files.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  std::vector<Fd> fillers;
  for (Fd filler(::dup(0)); filler.valid(); filler.reset(::dup(0))) fillers.push_back(std::move(filler));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(site.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(unconnected.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::send(unconnected.get(), kHello.data(), kHello.size(), 0);

  timespec start{}, end{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
  before.send(kHello);
  EXPECT_THAT(before.read_until("hello"), HasSubstr("200")) << "open connections go on";
  pollfd state{unconnected.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&state, 1, 250), 0) << "not accepted while there are no descriptors";
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  EXPECT_LT((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1'000'000, 150) << "it spins";

  fillers.clear();
  setrlimit(RLIMIT_NOFILE, &files);
  EXPECT_EQ(::poll(&state, 1, 5000), 1) << "accepted once there are descriptors again";
}

}  // namespace
}  // namespace levada::http
