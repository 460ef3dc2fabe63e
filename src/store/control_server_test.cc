// The control channel over sockets: what peers can do to the server and to each other, and what they get back.
#include "store/control_server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <thread>

#include "store/endpoint.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

class Peer {
 public:
  explicit Peer(const ControlServer& server)
      : socket_(*connect_to(*parse_endpoint("tcp://" + server.address()), 5'000'000)) {}
  bool say(std::string_view text) {
    while (!text.empty()) {
      const long sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Without its newline; empty if none comes within ten seconds.
  std::string hear() {
    std::string line;
    pollfd state{socket_.get(), POLLIN, 0};
    for (char letter; ::poll(&state, 1, 10'000) > 0 && ::recv(socket_.get(), &letter, 1, 0) == 1 && letter != '\n';)
      line += letter;
    return line;
  }
  bool closed() {
    char buffer[256];
    pollfd state{socket_.get(), POLLIN, 0};
    while (::poll(&state, 1, 10'000) > 0)
      if (::recv(socket_.get(), buffer, sizeof buffer, 0) <= 0) return true;
    return false;
  }
  void hang_up() { socket_.reset(); }
  const Fd& socket() const { return socket_; }

 private:
  Fd socket_;
};

class ControlServerTest : public ::testing::Test {
 protected:
  void start(ControlOptions options = {}) {
    options.url = "tcp://127.0.0.1:0";
    server_ = *ControlServer::start(*arena_, std::move(options));
  }
  void put(std::string_view key, std::size_t bytes = 100) { ASSERT_TRUE(arena_->put_from(key, pattern(bytes)).ok()); }
  bool eventually(const std::function<bool()>& done) {
    for (int turn = 0; turn < 10'000 && !done(); ++turn) ::usleep(1000);
    return done();
  }
  bool gone(std::string_view key) {
    return eventually([&] { return !arena_->find(key).has_value(); });
  }

  SystemClock clock_;
  std::unique_ptr<Arena> arena_ = make_arena(clock_, 64 << 10);
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, N8AnIdleServerTakesFreesAndAnswersWhoGreets) {
  start();
  put("plain");
  put("answered");
  Peer plain(*server_), greeted(*server_);
  ASSERT_TRUE(plain.say("[\"plain\"]\n"));
  EXPECT_TRUE(gone("plain"));
  ASSERT_TRUE(greeted.say("{\"hello\":{\"token\":\"\",\"run\":\"r\",\"incarnation\":null}}\n[\"answered\"]\n"));
  EXPECT_EQ(greeted.hear(), "{\"freed\":[\"answered\"],\"unknown\":[]}");
  EXPECT_EQ(server_->stats().accepted.load(), 2u);
}

TEST_F(ControlServerTest, Fault26AWriterThatWaitsForSpaceGoesOnOnceALineFreesIt) {
  start();
  put("old", 60 << 10);
  Peer peer(*server_);
  std::thread consumer([&] {
    while (arena_->stats().waits == 0) std::this_thread::yield();
    peer.say("[\"old\"]\n");
  });
  EXPECT_TRUE(arena_->put_from("new", pattern(60 << 10), {.wait_us = 10'000'000}).ok());
  consumer.join();
}

TEST_F(ControlServerTest, Fault32APeerThatHangsUpMidLineLosesThatLineAlone) {
  start();
  put("whole");
  put("half");
  Peer peer(*server_);
  ASSERT_TRUE(peer.say("[\"whole\"]\n[\"half\"]"));
  peer.hang_up();
  EXPECT_TRUE(gone("whole"));
  EXPECT_TRUE(eventually([&] { return server_->stats().closed.load() == 1; }));
  EXPECT_TRUE(arena_->find("half").has_value());
}

TEST_F(ControlServerTest, Fault33GarbageAHugeLineAndADrippingPeerEndTheirConnectionsAndHurtNobody) {
  start({.line_us = 50'000});
  Peer garbage(*server_), huge(*server_), dripping(*server_), patient(*server_);
  ASSERT_TRUE(patient.say("{\"hello\":{}}\n"));
  garbage.say("GET / HTTP/1.1\r\n\r\n");
  std::thread flood([&] { huge.say(std::string((1 << 20) + 4096, 'x')); });
  dripping.say("[\"");
  EXPECT_TRUE(garbage.closed());
  EXPECT_TRUE(huge.closed());
  flood.join();
  EXPECT_TRUE(dripping.closed());
  put("k");
  EXPECT_TRUE(patient.say("[\"k\"]\n"));
  EXPECT_EQ(patient.hear(), "{\"freed\":[\"k\"],\"unknown\":[]}");
  EXPECT_EQ(server_->stats().bad_lines.load(), 2u);
  EXPECT_EQ(server_->stats().timeouts.load(), 1u);
}

TEST_F(ControlServerTest, Fault33APeerThatNeverTakesItsAnswersIsClosedAndTheOthersAreServed) {
  start({.line_us = 100'000});
  Peer deaf(*server_), other(*server_);
  const int little = 4096;
  ::setsockopt(deaf.socket().get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
  std::thread talk([&] {
    std::string list = "[";
    for (int i = 0; i < 50'000; ++i) list += "\"key" + std::to_string(i) + "\",";
    list += "\"last\"]\n";
    if (!deaf.say("{\"hello\":{}}\n")) return;
    for (int i = 0; i < 20 && deaf.say(list); ++i) {
    }
  });
  put("k");
  EXPECT_TRUE(other.say("[\"k\"]\n"));
  EXPECT_TRUE(gone("k"));
  EXPECT_TRUE(eventually([&] { return server_->stats().timeouts.load() == 1; }));
  talk.join();
}

TEST_F(ControlServerTest, Fault45AWrongTokenOrNoneIsClosedAndChangesNothing) {
  start({.terms = {.token = kToken}});
  put("k");
  Peer wrong(*server_), none(*server_), right(*server_);
  wrong.say("{\"hello\":{\"token\":\"battery staple\"}}\n[\"k\"]\n");
  none.say("[\"k\"]\n");
  EXPECT_TRUE(wrong.closed());
  EXPECT_TRUE(none.closed());
  EXPECT_TRUE(arena_->find("k").has_value());
  EXPECT_EQ(server_->stats().bad_tokens.load(), 2u);
  right.say("{\"hello\":{\"token\":\"correct horse\"}}\n[\"k\"]\n");
  EXPECT_EQ(right.hear(), "{\"freed\":[\"k\"],\"unknown\":[]}");
}

TEST_F(ControlServerTest, MorePeersThanItTakesAreTurnedAway) {
  start({.max_connections = 1});
  Peer first(*server_);
  ASSERT_TRUE(eventually([&] { return server_->stats().accepted.load() == 1; }));
  Peer second(*server_);
  EXPECT_TRUE(second.closed());
  put("k");
  first.say("[\"k\"]\n");
  EXPECT_TRUE(gone("k"));
}

TEST_F(ControlServerTest, OfADeadConsumersRunTheObjectsGoAfterTheGraceUnlessItComesBack) {
  start({.orphan_us = 200'000, .keys_of_run = [](std::string_view run) { return "s/" + std::string(run) + ":"; }});
  put("s/dead:1/g1/x");
  put("s/alive:1/g1/x");
  put("s/dead2:1/g1/x");
  Peer dead(*server_), back(*server_);
  dead.say("{\"hello\":{\"run\":\"dead\"}}\n");
  back.say("{\"hello\":{\"run\":\"alive\"}}\n[]\n");
  back.hear();
  back.hang_up();
  Peer again(*server_);
  again.say("{\"hello\":{\"run\":\"alive\"}}\n[]\n");
  again.hear();
  dead.hang_up();
  EXPECT_TRUE(gone("s/dead:1/g1/x"));
  EXPECT_EQ(server_->stats().orphans.load(), 1u);
  EXPECT_TRUE(arena_->find("s/alive:1/g1/x").has_value());
  EXPECT_TRUE(arena_->find("s/dead2:1/g1/x").has_value()) << "another run whose name begins alike";
}

TEST_F(ControlServerTest, N3AnAddressThatIsTakenOrThatNobodyCouldReachIsRefused) {
  start();
  const auto refused = [&](const std::string& url) { return ControlServer::start(*arena_, {.url = url}).status(); };
  EXPECT_EQ(refused("tcp://" + server_->address()).code(), StatusCode::kUnavailable);
  for (const char* url : {"tcp://0.0.0.0:0", "tcp://[::]:0", "shm:///tmp/x", "nonsense"}) {
    EXPECT_EQ(refused(url).code(), StatusCode::kInvalidArgument) << url;
    EXPECT_EQ(refused(url).field(), "store_control_url") << url;
  }
}

}  // namespace
}  // namespace levada::store
