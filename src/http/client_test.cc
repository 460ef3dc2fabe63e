#include "http/client.h"

#include <gmock/gmock.h>

#include "base/thread.h"
#include "http/test_socket.h"

namespace levada::http {
namespace {

using testing::HasSubstr;

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    site.server->route("GET", "/hello",
                       [](Request in, Responder out) { out.respond(200, "text/plain", in.query["name"]); });
    site.server->route("POST", "/echo", [](Request in, Responder out) {
      out.respond(201, in.headers["content-type"], in.body + in.headers["x-more"]);
    });
    site.server->route("GET", "/stream", [](Request, Responder out) {
      out.start_stream(200, "text/event-stream");
      for (int i = 0; i < 3; ++i) out.write("data: " + std::to_string(i) + "\n\n");
      out.end();
    });
    site.server->route("GET", "/never", [this](Request, Responder out) { kept = std::move(out); });
    site.start();
  }

  Responder kept;
  TestServer site;
  Client client{"127.0.0.1", site.port()};
};

TEST_F(ClientTest, sends_method_target_headers_and_body) {
  EXPECT_EQ(client.get("/hello?name=levada")->body, "levada");
  const Result<ClientResponse> answer =
      client.request({.method = "POST",
                      .target = "/echo",
                      .body = "{}",
                      .headers = {{"Content-Type", "application/json"}, {"X-More", "!"}}});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->headers.at("content-type"), "application/json");
  EXPECT_EQ(answer->body, "{}!");
  EXPECT_EQ(client.post("/echo", "").value().body, "");
  EXPECT_EQ(client.request({.method = "HEAD", .target = "/hello?name=x"})->body, "");
  EXPECT_EQ(client.get("/nowhere")->status, 404);
}

TEST_F(ClientTest, hands_a_streamed_body_on_piece_by_piece) {
  std::string body;
  const Result<ClientResponse> answer = client.request({.target = "/stream", .on_body = [&](std::string_view piece) {
                                                          body += piece;
                                                          return true;
                                                        }});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(client.get("/stream")->body, body) << "whole, on the same connection";
}

TEST_F(ClientTest, ends_the_exchange_when_the_receiver_says_so) {
  const auto refuse = [](std::string_view) { return false; };
  EXPECT_EQ(client.request({.target = "/stream", .on_body = refuse}).status().code(), StatusCode::kAborted);
  EXPECT_EQ(client.get("/hello?name=again")->body, "again");
}

TEST_F(ClientTest, no_call_outlasts_its_timeout) {
  const Status status = client.request({.target = "/never", .timeout = std::chrono::milliseconds(50)}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("did not answer in time"));
}

TEST_F(ClientTest, a_stop_ends_the_call_under_way_and_every_later_one) {
  std::stop_source stop;
  const ClientRequest request{.target = "/never", .timeout = std::chrono::hours(1), .stop = stop.get_token()};
  Thread stopper("stopper", [&] { stop.request_stop(); });
  EXPECT_EQ(client.request(request).status().code(), StatusCode::kAborted);
  EXPECT_EQ(client.request(request).status().code(), StatusCode::kAborted);
  EXPECT_EQ(client.get("/hello?name=others")->body, "others") << "only of calls with that token";
}

TEST_F(ClientTest, an_unreachable_server_is_named) {
  const std::uint16_t port = site.port();
  site.stop();
  site.server.reset();
  const Status status = Client("127.0.0.1", port).get("/").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cannot connect to 127.0.0.1:" + std::to_string(port)));
}

// A peer that answers every connection with the same bytes and closes.
class FakePeer {
 public:
  explicit FakePeer(std::string answer) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    LEVADA_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
    LEVADA_CHECK(::listen(listener_.get(), 8) == 0, "listen");
    LEVADA_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "name");
    port_ = ntohs(address.sin_port);
    thread_ = Thread("fake-peer", [this, answer = std::move(answer)] {
      const Fd peer(::accept(listener_.get(), nullptr, nullptr));
      char request[4096];
      (void)!::recv(peer.get(), request, sizeof request, 0);
      ::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    });
  }
  Result<ClientResponse> ask() { return Client("127.0.0.1", port_).get("/"); }

 private:
  Fd listener_;
  std::uint16_t port_ = 0;
  Thread thread_;
};

TEST(Client, what_is_not_http_or_ends_early_is_data_loss) {
  for (const char* answer : {"", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"})
    EXPECT_EQ(FakePeer(answer).ask().status().code(), StatusCode::kDataLoss) << answer;
  EXPECT_EQ(FakePeer("HTTP/1.1 200 OK\r\nX: " + std::string(200'000, 'x')).ask().status().code(),
            StatusCode::kDataLoss);
}

TEST(Client, interim_answers_are_passed_over_and_a_body_may_end_with_the_connection) {
  EXPECT_EQ(FakePeer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n\r\nuntil close")
                .ask()
                ->body,
            "until close");
}

}  // namespace
}  // namespace levada::http
