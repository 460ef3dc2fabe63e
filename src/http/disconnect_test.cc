#include <gmock/gmock.h>

#include <future>

#include "http/server.h"
#include "http/test_socket.h"

namespace levada::http {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kWait = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";

// One route that hands its Responder to the test; `gone` is fulfilled by on_disconnect.
class DisconnectTest : public testing::Test {
 protected:
  DisconnectTest() : site({.max_pending_bytes = 1 << 20}) {
    site.server->route("GET", "/wait", [this](Request, Responder out) {
      out.on_disconnect([this] { gone.set_value(); });
      arrived.set_value(std::move(out));
    });
    site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
    site.start();
  }

  Responder open(RawSocket& socket) {
    socket.send(kWait);
    return arrived.get_future().get();
  }
  bool heard_within(std::chrono::milliseconds time = std::chrono::seconds(10)) {
    return gone_.wait_for(time) == std::future_status::ready;
  }

  TestServer site;
  std::promise<Responder> arrived;
  std::promise<void> gone;
  std::future<void> gone_ = gone.get_future();
};

TEST_F(DisconnectTest, a_client_that_closes_while_its_answer_is_awaited_is_noticed) {
  RawSocket socket(site.port());
  const Responder out = open(socket);
  EXPECT_FALSE(out.client_gone());
  socket.close();
  EXPECT_TRUE(heard_within());
  EXPECT_TRUE(out.client_gone());
  EXPECT_EQ(site.responses(499), 1);
}

TEST_F(DisconnectTest, a_reset_is_noticed) {
  RawSocket socket(site.port());
  const Responder out = open(socket);
  socket.reset();
  EXPECT_TRUE(heard_within());
}

TEST_F(DisconnectTest, a_client_that_closes_during_a_stream_is_noticed_before_the_next_write) {
  RawSocket socket(site.port());
  const Responder out = open(socket);
  out.start_stream(200, "text/event-stream");
  out.write("data: 1\n\n");
  socket.read_until("data: 1");
  socket.close();
  EXPECT_TRUE(heard_within());
}

// Nothing harmless could be written to tell it from one that closed: an interim response it did not ask for is none.
TEST_F(DisconnectTest, a_client_that_shuts_its_sending_side_down_while_its_answer_is_awaited_has_left) {
  RawSocket socket(site.port());
  const Responder out = open(socket);
  socket.half_close();
  EXPECT_TRUE(heard_within());
  out.respond(200, "text/plain", "too late");
  EXPECT_EQ(socket.read_all(), "") << "no 100 Continue, no answer";
  EXPECT_TRUE(socket.ended());
  EXPECT_EQ(site.responses(499), 1);
}

TEST_F(DisconnectTest, a_response_that_was_complete_reaches_a_client_that_shut_its_sending_side_down) {
  RawSocket socket(site.port(), 4096);
  const Responder out = open(socket);
  std::string body(8 << 20, 'x');
  body.append("end");
  out.respond(200, "text/plain", body);
  socket.read_until("x");
  socket.half_close();
  EXPECT_THAT(socket.read_all(), testing::EndsWith("end"));
  EXPECT_FALSE(heard_within(std::chrono::milliseconds(0)));
}

TEST_F(DisconnectTest, the_callback_is_not_called_once_the_response_is_complete) {
  RawSocket socket(site.port());
  const Responder out = open(socket);
  out.respond(200, "text/plain", "done");
  socket.read_until("done");
  socket.close();
  EXPECT_FALSE(heard_within(std::chrono::milliseconds(50)));
}

TEST_F(DisconnectTest, a_callback_set_after_the_client_left_is_called_as_well) {
  RawSocket socket(site.port());
  const Responder out = open(socket);
  socket.reset();
  EXPECT_TRUE(heard_within());
  std::promise<void> late;
  out.on_disconnect([&] { late.set_value(); });
  EXPECT_EQ(late.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(DisconnectTest, a_callback_may_hold_the_responder_itself) {
  RawSocket socket(site.port());
  std::weak_ptr<int> alive;
  {
    const Responder out = open(socket);
    const auto token = std::make_shared<int>();
    alive = token;
    out.on_disconnect([this, out, token] { gone.set_value(); });
  }
  socket.reset();
  EXPECT_TRUE(heard_within());
  site.stop();
  EXPECT_TRUE(alive.expired()) << "the cycle is cut";
}

TEST_F(DisconnectTest, a_client_that_reads_too_slowly_is_closed_and_its_handler_hears_of_it) {
  RawSocket socket(site.port(), 4096);
  const Responder out = open(socket);
  out.start_stream(200, "text/event-stream");
  const std::string event = "data: " + std::string(1000, 'x') + "\n\n";
  std::size_t most = 0;
  for (int i = 0; i < 100'000 && !out.client_gone(); ++i) {
    out.write(event);
    most = std::max(most, out.pending_bytes());
  }
  EXPECT_TRUE(heard_within());
  EXPECT_LT(most, (1u << 20) + 2000) << "what waits for the client is bounded";
  EXPECT_THAT(socket.read_all(), Not(HasSubstr("0\r\n\r\n"))) << "the client can tell that the stream was cut";
}

TEST_F(DisconnectTest, many_clients_that_leave_leave_nothing_behind) {
  for (int i = 0; i < 300; ++i) {
    RawSocket socket(site.port());
    socket.send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\nGET /he");
    if (i % 3 == 0) socket.read_until("hello");
    if (i % 2 == 0) socket.reset();
  }
  RawSocket last(site.port());
  last.send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(last.read_until("hello"), HasSubstr("200 OK"));
}

}  // namespace
}  // namespace levada::http
