// A server's life: listening, jobs on its thread, stopping, what outlives it, running short of descriptors.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "http/server_fixture.h"

namespace levada::http {
namespace {

using testing::HasSubstr;

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

std::size_t resident_bytes() {
  std::size_t all_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> resident_pages;
  return resident_pages * static_cast<std::size_t>(::getpagesize());
}

// The server runs on this thread, as in the product: the main thread's heap alone shrinks at its end.
TEST(Server, memory_that_large_bodies_took_is_given_back_once_none_came_for_a_while) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory on purpose";
#endif
  constexpr std::size_t kMiB = 1u << 20;
  Metrics metrics;
  const std::unique_ptr<Server> server =
      *Server::listen({.port = 0, .read_timeout = std::chrono::milliseconds(400)}, metrics);
  server->route("POST", "/size",
                [](Request in, Responder out) { out.respond(200, "text/plain", std::to_string(in.body.size())); });
  const std::size_t before = resident_bytes();
  std::size_t after = 0;
  const Thread client("client", [&] {
    const std::string mebibyte(kMiB, 'x');
    for (const std::size_t bytes : {20 * kMiB, 40 * kMiB, 20 * kMiB}) {
      RawSocket socket(server->port());
      socket.send("POST /size HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n");
      for (std::size_t sent = 0; sent < bytes; sent += kMiB) socket.send(mebibyte);
      socket.read_until("\r\n\r\n" + std::to_string(bytes));
    }
    server->post_after(std::chrono::milliseconds(1500), [&] {
      after = resident_bytes();
      server->stop();
    });
  });
  server->run();
  EXPECT_LT(after, before + 8 * kMiB) << "resident before: " << before;
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
