// What bad peers do to the server: nothing, beyond losing their own connection.
#include <gtest/gtest.h>
#include <poll.h>

#include <random>
#include <thread>

#include "store/endpoint.h"
#include "store/frame.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

// A peer that sends whatever it likes.
class Peer {
 public:
  explicit Peer(const std::string& url) : socket_(*connect_to(*parse_endpoint(url), 5'000'000)) {}

  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const long sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool send(const Frame& frame, std::string_view text = {}) {
    Frame head = frame;
    head.text_bytes = static_cast<std::uint16_t>(text.size());
    return send(encode(head)) && send(std::as_bytes(std::span(text)));
  }
  bool hello() {
    send(Frame{.op = Op::kHello}, kToken);
    return receive().has_value();
  }
  // The next reply's head, its text thrown away; nullopt once the server has closed.
  std::optional<Frame> receive() {
    std::array<std::byte, kFrameBytes> head;
    if (!receive_all(head)) return std::nullopt;
    const Result<Frame> frame = decode(head);
    if (!frame.ok()) return std::nullopt;
    std::vector<std::byte> rest(frame->text_bytes + frame->body_bytes);
    return receive_all(rest) ? std::optional(*frame) : std::nullopt;
  }
  // True once the server has closed; false after ten seconds.
  bool closed() {
    char buffer[4096];
    pollfd state{socket_.get(), POLLIN, 0};
    while (::poll(&state, 1, 10'000) > 0)
      if (::recv(socket_.get(), buffer, sizeof buffer, 0) <= 0) return true;
    return false;
  }
  void hang_up() { socket_.reset(); }

 private:
  bool receive_all(std::span<std::byte> to) {
    while (!to.empty()) {
      const long got = ::recv(socket_.get(), to.data(), to.size(), 0);
      if (got <= 0) return false;
      to = to.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }
  Fd socket_;
};

class ServerFaultTest : public ::testing::Test {
 protected:
  static ServerOptions impatient() {
    ServerOptions options;
    options.hello_us = 300'000;
    options.frame_us = 300'000;
    options.max_connections = 20;
    return options;
  }
  const std::string& url() { return served_.server->tcp_url(); }
  // Whatever a peer did: a well-behaved client still gets its bytes, and nothing of the peer is left.
  void expect_unhurt() {
    const auto client = served_.client(url());
    ASSERT_TRUE(client->put_from("good", pattern(100'000)).ok());
    std::vector<std::byte> to(100'000);
    ASSERT_TRUE(client->get_into("good", to).ok());
    EXPECT_EQ(to, pattern(100'000));
    ASSERT_EQ(*client->remove("good"), RemoveOutcome::kFreed);
    EXPECT_TRUE(served_.eventually([&] { return served_.arena->stats().used_bytes == 0; }));
    served_.arena->check_invariants();
  }

  ServedArena served_{8 << 20, impatient()};
};

TEST_F(ServerFaultTest, Fault33GarbageEndsThatConnectionAndIsCounted) {
  Peer peer(url());
  peer.send(std::vector<std::byte>(5000, std::byte{'x'}));
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(served_.server->stats().bad_frames.load(), 1u);
  expect_unhurt();
}

TEST_F(ServerFaultTest, Fault45WithoutTheTokenNothingIsAnsweredAndNothingChanges) {
  for (const std::string& token :
       std::vector<std::string>{"", "correct hors", "correct horse!", "wrong", std::string(1024, 'a')}) {
    Peer peer(url());
    peer.send(Frame{.op = Op::kHello}, token);
    const auto reply = peer.receive();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->status, StatusCode::kUnauthenticated);
    EXPECT_EQ(reply->first, 0u) << "not even the capacity";
    EXPECT_TRUE(peer.closed());
  }
  EXPECT_EQ(served_.server->stats().bad_tokens.load(), 5u);
  Peer unasked(url());
  unasked.send(Frame{.op = Op::kPut, .body_bytes = 3}, "k");
  EXPECT_TRUE(unasked.closed()) << "no hello";
  const auto refused = open_store(url(), "wrong", {}, served_.clock);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(refused.status().message().find(kToken), std::string::npos) << "a token is never told";
  expect_unhurt();
}

TEST_F(ServerFaultTest, TcpWithoutATokenIsRefusedAtStart) {
  ServerOptions options;
  options.tcp_url = "tcp://127.0.0.1:0";
  EXPECT_EQ(StoreServer::start(*served_.arena, options).status().field(), "token");
  options.tcp_url.clear();
  EXPECT_EQ(StoreServer::start(*served_.arena, options).status().field(), "store_url");
}

TEST_F(ServerFaultTest, Fault33APeerThatSaysNothingOrDripsIsClosedInTime) {
  Peer silent(url());
  Peer dripping(url());
  ASSERT_TRUE(dripping.hello());
  const auto head = encode(Frame{.op = Op::kExist, .text_bytes = 1});
  std::thread drip([&] {
    for (std::byte byte : head) {
      if (!dripping.send(std::span(&byte, 1))) return;
      ::usleep(20'000);
    }
  });
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(dripping.closed()) << "a byte now and then doesn't buy time";
  drip.join();
  EXPECT_EQ(served_.server->stats().timeouts.load(), 2u);
  expect_unhurt();
}

TEST_F(ServerFaultTest, AGreetedPeerMayBeSilentForAsLongAsItLikes) {
  Peer peer(url());
  ASSERT_TRUE(peer.hello());
  ::usleep(700'000);
  peer.send(Frame{.op = Op::kExist}, "k");
  EXPECT_TRUE(peer.receive().has_value());
}

// Faults 32 and 4: what was half written is nobody's object.
TEST_F(ServerFaultTest, Fault32APeerThatHangsUpOrStallsInABodyLeavesNothing) {
  for (const bool hangs_up : {true, false}) {
    Peer peer(url());
    ASSERT_TRUE(peer.hello());
    peer.send(Frame{.op = Op::kPut, .body_bytes = 1 << 20}, "half");
    peer.send(pattern(300'000));
    EXPECT_TRUE(served_.eventually([&] { return served_.arena->stats().writing == 1; }));
    if (hangs_up) {
      peer.hang_up();
    } else {
      EXPECT_TRUE(peer.closed());
    }
    EXPECT_TRUE(served_.eventually([&] { return served_.arena->stats().used_bytes == 0; }));
    EXPECT_FALSE(served_.arena->find("half").has_value());
  }
  expect_unhurt();
}

// B34: lengths and numbers that a peer makes up.
TEST_F(ServerFaultTest, B34LengthsThatAPeerMakesUpAreRefusedBeforeAnythingIsReserved) {
  for (const std::uint64_t bytes : {std::uint64_t{8 << 20} + 1, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    Peer peer(url());
    ASSERT_TRUE(peer.hello());
    peer.send(Frame{.op = Op::kPut, .body_bytes = bytes}, "huge");
    const auto reply = peer.receive();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->status, StatusCode::kPayloadTooLarge);
    EXPECT_TRUE(peer.closed());
  }
  ASSERT_TRUE(served_.arena->put_from("k", pattern(1000)).ok());
  Peer peer(url());
  ASSERT_TRUE(peer.hello());
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{999}, std::uint64_t{1001}, ~std::uint64_t{0}}) {
    peer.send(Frame{.op = Op::kGet, .first = bytes}, "k");
    EXPECT_EQ(peer.receive()->status, StatusCode::kInvalidArgument);
  }
  peer.send(Frame{.op = Op::kLease, .first = ~std::uint64_t{0}}, "k");
  EXPECT_EQ(peer.receive()->status, StatusCode::kOk) << "for ever is a time too";
  peer.send(Frame{.op = Op::kRelease, .first = 12345});
  peer.send(Frame{.op = Op::kRemovePrefix});
  EXPECT_EQ(peer.receive()->status, StatusCode::kInvalidArgument) << "everything is never removed by mistake";
  peer.send(Frame{.op = Op::kRemove}, "k");
  EXPECT_EQ(peer.receive()->flags, static_cast<std::uint8_t>(RemoveOutcome::kStillRead));
  peer.hang_up();
  expect_unhurt();
}

TEST_F(ServerFaultTest, OneClientCannotReleaseAnothersLease) {
  ASSERT_TRUE(served_.arena->put_from("k", pattern(1000)).ok());
  Peer owner(url()), thief(url());
  ASSERT_TRUE(owner.hello() && thief.hello());
  owner.send(Frame{.op = Op::kLease}, "k");
  const auto lease = owner.receive();
  ASSERT_TRUE(lease.has_value());
  thief.send(Frame{.op = Op::kRelease, .first = lease->third});
  thief.send(Frame{.op = Op::kRemove}, "k");
  EXPECT_EQ(thief.receive()->flags, static_cast<std::uint8_t>(RemoveOutcome::kStillRead));
  owner.hang_up();
  expect_unhurt();
}

// B33: what a client pinned goes with the client.
TEST_F(ServerFaultTest, B33PinsEndWithTheirClient) {
  auto client = served_.client(url());
  auto mapped = served_.client(served_.server->shm_url());
  ASSERT_TRUE(client->put_from("a", pattern(1000)).ok());
  ASSERT_TRUE(client->put_from("b", pattern(1000)).ok());
  Peer peer(url());
  ASSERT_TRUE(peer.hello());
  for (int i = 0; i < 100; ++i) {
    peer.send(Frame{.op = Op::kLease}, i % 2 == 0 ? "a" : "b");
    ASSERT_EQ(peer.receive()->status, StatusCode::kOk);
  }
  EXPECT_EQ(served_.arena->stats().leases, 100u);
  EXPECT_EQ(*client->remove("a"), RemoveOutcome::kStillRead);
  peer.hang_up();
  EXPECT_TRUE(served_.eventually([&] { return served_.arena->stats().leases == 0; }));
  EXPECT_EQ(*client->remove("a"), RemoveOutcome::kAbsent);
  EXPECT_EQ(*client->remove("b"), RemoveOutcome::kFreed);
}

TEST_F(ServerFaultTest, LeasesAndConnectionsOfOnePeerAreBounded) {
  ServerOptions options;
  options.max_leases_per_client = 3;
  options.max_connections = 2;
  ServedArena served(1 << 20, options);
  ASSERT_TRUE(served.arena->put_from("k", pattern(10)).ok());
  Peer first(served.server->tcp_url()), second(served.server->tcp_url());
  ASSERT_TRUE(first.hello() && second.hello());
  for (int i = 0; i < 4; ++i) {
    first.send(Frame{.op = Op::kLease}, "k");
    EXPECT_EQ(first.receive()->status, i < 3 ? StatusCode::kOk : StatusCode::kResourceExhausted);
  }
  Peer third(served.server->tcp_url());
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(served.server->stats().refused_full.load(), 1u);
}

// Faults 30 and 31, invariant 24: how a stream of requests is cut makes no difference.
TEST_F(ServerFaultTest, Fault30RequestsMayComeInPiecesOfAnySizeAndManyAtOnce) {
  std::vector<std::byte> stream;
  const auto append = [&](const Frame& frame, std::string_view text, std::span<const std::byte> body = {}) {
    Frame head = frame;
    head.text_bytes = static_cast<std::uint16_t>(text.size());
    head.body_bytes = body.size();
    const auto bytes = encode(head);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    const auto of_text = std::as_bytes(std::span(text));
    stream.insert(stream.end(), of_text.begin(), of_text.end());
    stream.insert(stream.end(), body.begin(), body.end());
  };
  append({.op = Op::kPut}, "a", pattern(1000));
  append({.op = Op::kPut}, "a", pattern(700));  // a clash, whose body must be skipped just right
  append({.op = Op::kPut}, "empty");
  append({.op = Op::kRelease, .first = 7}, "");
  append({.op = Op::kRemove}, "a");
  append({.op = Op::kRemove}, "a");
  append({.op = Op::kRemovePrefix}, "em");
  const std::vector<std::pair<StatusCode, int>> expected = {{StatusCode::kOk, 0}, {StatusCode::kAlreadyExists, 0},
                                                            {StatusCode::kOk, 0}, {StatusCode::kOk, 0},
                                                            {StatusCode::kOk, 2}, {StatusCode::kOk, 0}};
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{63}, std::size_t{65}, stream.size()}) {
    ServedArena served(8 << 20);
    Peer peer(served.server->tcp_url());
    ASSERT_TRUE(peer.hello());
    std::thread sender([&] {
      for (std::size_t at = 0; at < stream.size(); at += piece)
        peer.send(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
    });
    for (const auto& [status, flags] : expected) {
      const auto reply = peer.receive();
      ASSERT_TRUE(reply.has_value()) << piece;
      EXPECT_EQ(reply->status, status) << piece;
      EXPECT_EQ(reply->flags, flags) << piece;
    }
    sender.join();
    EXPECT_EQ(served.arena->stats().used_bytes, 0u);
    EXPECT_EQ(served.arena->stats().free_unknown, 1u);
  }
}

TEST_F(ServerFaultTest, Fault33APeerThatDoesNotReadItsObjectIsClosedAndHoldsNobodyUp) {
  ServerOptions options = impatient();
  options.least_bytes_per_s = 1 << 30;
  ServedArena served(32 << 20, options);
  ASSERT_TRUE(served.arena->put_from("big", pattern(30 << 20)).ok());
  Peer peer(served.server->tcp_url());
  ASSERT_TRUE(peer.hello());
  peer.send(Frame{.op = Op::kGet, .first = 30 << 20}, "big");
  EXPECT_TRUE(served.eventually([&] { return served.arena->stats().views == 1; }));
  EXPECT_EQ(served.arena->remove("big"), RemoveOutcome::kStillRead) << "the slow one's bytes are kept";
  const auto client = served.client(served.server->tcp_url());
  EXPECT_TRUE(client->put_from("other", pattern(1 << 20)).ok());
  EXPECT_TRUE(served.eventually([&] { return served.server->stats().timeouts.load() == 1; }));
  EXPECT_EQ(*client->remove("big"), RemoveOutcome::kAbsent) << "until its time is over";
}

TEST_F(ServerFaultTest, AClientThatDiesWhileItsPutWaitsForSpaceLeavesTheQueue) {
  ASSERT_TRUE(served_.arena->put_from("big", pattern(7 << 20)).ok());
  Peer peer(url());
  ASSERT_TRUE(peer.hello());
  peer.send(Frame{.op = Op::kPut, .body_bytes = 4 << 20, .first = 60'000'000}, "waits");
  EXPECT_TRUE(served_.eventually([&] { return served_.arena->stats().waits == 1; }));
  peer.hang_up();
  const auto client = served_.client(url());
  EXPECT_TRUE(client->put_from("small", pattern(1000), {.wait_us = 5'000'000}).ok()) << "the place in front is free";
  served_.arena->remove("big");
  served_.arena->remove("small");
  expect_unhurt();
}

// Seeded nonsense: valid heads with random fields, cut and mixed with plain noise.
TEST_F(ServerFaultTest, RandomFramesNeverHurtTheServer) {
  std::mt19937_64 random(20251129);
  ASSERT_TRUE(served_.arena->put_from("k", pattern(1000)).ok());
  for (int round = 0; round < 2000; ++round) {
    Peer peer(round % 3 == 0 ? served_.server->shm_url() : url());
    if (random() % 8 != 0 && !peer.hello()) continue;
    for (int message = 0; message < 6; ++message) {
      Frame frame{.op = static_cast<Op>(1 + random() % 8),
                  .reply = random() % 10 == 0,
                  .flags = static_cast<std::uint8_t>(random()),
                  .id = static_cast<std::uint32_t>(random()),
                  .first = random() >> (random() % 64),
                  .second = random(),
                  .third = random(),
                  .incarnation = random() % 2 == 0 ? 0 : random()};
      if (frame.op == Op::kPut) frame.body_bytes = random() >> (40 + random() % 24);
      std::string text(random() % 4 == 0 ? random() % 1024 : 1, static_cast<char>('a' + random() % 20));
      if (!peer.send(frame, text)) break;
      if (random() % 3 == 0) peer.send(pattern(random() % 5000, static_cast<unsigned>(random())));
    }
    peer.hang_up();
  }
  EXPECT_TRUE(served_.eventually([&] {
    const StoreServerStats& stats = served_.server->stats();
    return stats.accepted.load() == stats.closed.load();
  }));
  served_.arena->remove_prefix("k");
  for (char key = 'a'; key <= 't'; ++key) served_.arena->remove_prefix(std::string(1, key));
  expect_unhurt();
}

}  // namespace
}  // namespace levada::store
