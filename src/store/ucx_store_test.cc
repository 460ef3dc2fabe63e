// What UcxStore promises when its peer is killed, silent, lies or is not there at all; what it does when all is well is in
// conformance_test.cc.
#include "store/ucx_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "store/child_test.h"
#include "store/store_service.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

constexpr std::size_t kBigBytes = 32 << 20;  // is under way long enough to be interrupted

ServerOptions over_ucx() {
  ServerOptions options;
  options.ucx_url = "ucx://127.0.0.1:0";
  return options;
}

// A ucx_peer process.
class Peer {
 public:
  explicit Peer(std::vector<std::string> arguments) {
    int in[2], out[2];
    LEVADA_CHECK(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0, "pipes");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ucx_peer";
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t process = 0;
    LEVADA_CHECK(::posix_spawn(&process, program.c_str(), &actions, nullptr, argv.data(), environ) == 0, "spawn");
    process_ = Doomed(process);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    in_.reset(in[1]);
    out_ = ::fdopen(out[0], "r");
  }
  ~Peer() {
    kill();  // first: it may be writing
    std::fclose(out_);
  }
  // The next line it prints; empty at the end.
  std::string line() {
    char text[200] = {};
    if (std::fgets(text, sizeof text, out_) == nullptr) return "";
    return std::string(text, std::strcspn(text, "\n"));
  }
  void signal(int number) { process_.signal(number); }
  void kill() { process_.kill(); }

 private:
  Doomed process_;
  Fd in_;
  std::FILE* out_ = nullptr;
};

class UcxStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ucx_is_there()) GTEST_SKIP() << "built without UCX";
  }

  SystemClock clock_;
};

TEST_F(UcxStoreTest, ObjectsGoBothWaysBetweenProcessesAndTheTransportsAreNamed) {
  Peer server({"serve", std::to_string(kBigBytes)});
  Result<std::unique_ptr<ObjectStore>> store = open_store(server.line(), kToken, {}, clock_);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  std::vector<std::byte> to(kBigBytes);
  const auto info = (*store)->get_into("k", to);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(to, pattern(kBigBytes));
  const auto value = pattern(3'000'001, 5);
  ASSERT_TRUE((*store)->put_from("p", value).ok());
  to.assign(value.size(), std::byte{});
  ASSERT_TRUE((*store)->get_into("p", to).ok());
  EXPECT_EQ(to, value);
  EXPECT_EQ((*store)->put_from("p", value).code(), StatusCode::kAlreadyExists);
  const std::string transports = static_cast<UcxStore&>(**store).transports();
  EXPECT_NE(transports.find('/'), transports.npos) << transports;
  EXPECT_TRUE(falls_back_to_tcp(transports))
      << transports << ": on one machine UCX has nothing else for peers that may fail";
}

TEST_F(UcxStoreTest, AServerKilledInMidGetIsAClearErrorAtOnce) {
  Peer server({"serve", std::to_string(kBigBytes)});
  const auto store = open_store(server.line(), kToken, {.timeout_us = 20'000'000}, clock_);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  std::vector<std::byte> to(kBigBytes);
  std::atomic<bool> killed{false};
  std::thread killer([&] {
    ::usleep(60'000);
    server.kill();
    killed.store(true);
  });
  Status status;
  while (status.ok()) status = (*store)->get_into("k", to).status();
  killer.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
  const std::int64_t before_us = clock_.now_us();
  EXPECT_EQ((*store)->get_into("k", to).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ((*store)->put_from("p", to).code(), StatusCode::kUnavailable);
  EXPECT_LT(clock_.now_us() - before_us, 5'000'000);
}

TEST_F(UcxStoreTest, AServerKilledInMidPutIsAClearErrorAtOnce) {
  Peer server({"serve", std::to_string(kBigBytes)});
  const auto store = open_store(server.line(), kToken, {.timeout_us = 20'000'000}, clock_);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  const auto value = pattern(kBigBytes, 3);
  std::thread killer([&] {
    ::usleep(60'000);
    server.kill();
  });
  Status status;
  while (status.ok()) {
    status = (*store)->put_from("p", value);
    if (status.ok()) status = (*store)->remove("p").status();
  }
  killer.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
}

TEST_F(UcxStoreTest, ASilentServerEndsTheCallInItsTime) {
  Peer server({"serve", std::to_string(kBigBytes)});
  const auto store = open_store(server.line(), kToken, {.timeout_us = 500'000}, clock_);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  std::vector<std::byte> to(kBigBytes);
  ASSERT_TRUE((*store)->get_into("k", to).ok());
  server.signal(SIGSTOP);
  const std::int64_t before_us = clock_.now_us();
  EXPECT_EQ((*store)->get_into("k", to).status().code(), StatusCode::kUnavailable);
  EXPECT_LT(clock_.now_us() - before_us, 3'000'000);
  server.signal(SIGCONT);
  const auto info = (*store)->get_into("k", to);
  EXPECT_TRUE(info.ok()) << info.status().to_string();
}

// A server in this process, and a client that does nothing else than `what` until it is interrupted.
class UcxClientTest : public UcxStoreTest {
 protected:
  void SetUp() override {
    UcxStoreTest::SetUp();
    if (IsSkipped()) return;
    served_ = std::make_unique<ServedArena>(4 * kBigBytes, over_ucx());
    ASSERT_TRUE(served_->arena->put_from("k", pattern(kBigBytes)).ok());
  }
  void interrupt(const char* what, int signal) {
    Peer client({what, served_->server->ucx_url(), std::to_string(kBigBytes)});
    ASSERT_EQ(client.line(), what);
    ASSERT_EQ(client.line(), what) << "one is through, another has begun";
    ::usleep(10'000);
    client.signal(signal);
    if (signal == SIGKILL) client.kill();
    const auto nothing_held = [&] {
      const ArenaStats stats = served_->arena->stats();
      return stats.leases == 0 && stats.views == 0 && stats.writing == 0;
    };
    // A stopped client keeps its connection: what it holds ends with its lease, of twice its time limit.
    EXPECT_TRUE(served_->eventually(nothing_held));
    served_->arena->check_invariants();
  }
  void expect_served() {
    const auto store = served_->client(served_->server->ucx_url());
    std::vector<std::byte> to(kBigBytes);
    const auto info = store->get_into("k", to);
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(to, pattern(kBigBytes));
  }

  std::unique_ptr<ServedArena> served_;
};

TEST_F(UcxClientTest, OneKilledInMidGetGivesBackItsLeaseAndHurtsNobody) {
  interrupt("get", SIGKILL);
  expect_served();
}

TEST_F(UcxClientTest, OneKilledInMidPutLeavesNoObjectAndNoMemoryBehind) {
  interrupt("put", SIGKILL);
  EXPECT_FALSE(served_->arena->find("p").has_value() && served_->arena->stats().objects > 2);
  served_->arena->remove("p");
  EXPECT_EQ(served_->arena->stats().objects, 1u);
  expect_served();
}

TEST_F(UcxClientTest, OneThatFallsSilentInMidGetHoldsTheObjectNoLongerThanItsLease) {
  interrupt("get", SIGSTOP);
  expect_served();
}

TEST_F(UcxStoreTest, ARestartedServerIsReadAgainAndItsOldObjectsAreGone) {
  ServedArena served(8 << 20, over_ucx());
  const auto store = served.client(served.server->ucx_url());
  const auto value = pattern(1 << 20);
  std::vector<std::byte> to(value.size());
  ASSERT_TRUE(store->put_from("k", value).ok());
  ASSERT_TRUE(store->get_into("k", to).ok());
  const std::uint64_t before = store->incarnation();
  served.stop();
  EXPECT_EQ(store->get_into("k", to).status().code(), StatusCode::kUnavailable);
  served.start();
  EXPECT_EQ(store->get_into("k", to, before).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(store->put_from("k", pattern(1 << 20, 2)).ok());
  served.stop();
  served.start();
  ASSERT_TRUE(store->put_from("k", pattern(1 << 20, 3)).ok()) << "found out by the call itself";
  ASSERT_TRUE(store->get_into("k", to).ok());
  EXPECT_EQ(to, pattern(1 << 20, 3));
}

TEST_F(UcxStoreTest, AWrongTokenIsRefusedAndAReadLeavesNoLeaseBehind) {
  ServedArena served(8 << 20, over_ucx());
  const std::string url = served.server->ucx_url();
  EXPECT_EQ(open_store(url, "wrong", {}, clock_).status().code(), StatusCode::kUnauthenticated);
  const auto store = served.client(url);
  std::vector<std::byte> to(1 << 20);
  ASSERT_TRUE(served.arena->put_from("k", pattern(to.size())).ok());
  ASSERT_TRUE(store->get_into("k", to).ok());
  to.resize(20'000);
  EXPECT_EQ(store->get_into("k", to).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(served.eventually([&] { return served.arena->stats().leases == 0; }));
  EXPECT_EQ(served.arena->remove("k"), RemoveOutcome::kFreed);
}

// Behind the store's client: what a peer may say to a port.
class UcxPortTest : public UcxStoreTest {
 protected:
  // A link as UcxStore opens it, with `change` made to what the server told.
  template <class Change>
  std::unique_ptr<UcxLink> link(ServedArena& served, Change change) {
    ClientChannel channel(*parse_endpoint(served.server->ucx_url()), kToken, {}, clock_,
                          [](const Frame&, std::vector<Fd>) { return Status(); });
    const auto reply = channel.call({.op = Op::kUcxPort});
    LEVADA_CHECK(reply.ok() && reply->status.ok(), "no port");
    UcxAddress address;
    address.address = channel.peer(address.length);
    address.set_port(static_cast<std::uint16_t>(reply->frame.first));
    UcxSecret secret{reply->frame.second, reply->frame.third};
    change(secret);
    auto link = open_ucx_link(address, secret, for_a_second());
    LEVADA_CHECK(link.ok(), link.status().to_string().c_str());
    return *std::move(link);
  }
  UcxLink::GoOn for_a_second() {
    return [this, end_us = clock_.now_us() + 1'000'000] { return clock_.now_us() < end_us; };
  }
};

TEST_F(UcxPortTest, WithoutTheSecretThereIsNoAnswer) {
  ServedArena served(8 << 20, over_ucx());
  ASSERT_TRUE(served.arena->put_from("k", pattern(100'000)).ok());
  const auto lease = served.arena->lease("k", 60'000'000, kAnyIncarnation);
  std::vector<std::byte> to(100'000);
  const auto stranger = link(served, [](UcxSecret& secret) { secret[1] ^= 1; });
  EXPECT_EQ(stranger->read(lease->first, to, for_a_second()).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(stranger->broken());
  EXPECT_EQ(to, std::vector<std::byte>(100'000)) << "untouched";
  const auto guest = link(served, [](UcxSecret&) {});
  EXPECT_TRUE(guest->read(lease->first, to, for_a_second()).ok());
  EXPECT_EQ(to, pattern(100'000));
}

TEST_F(UcxPortTest, LeasesAndTicketsThatNobodyGaveAreRefusedAndTheLinkStays) {
  ServedArena served(8 << 20, over_ucx());
  ASSERT_TRUE(served.arena->put_from("k", pattern(100'000)).ok());
  const auto guest = link(served, [](UcxSecret&) {});
  std::vector<std::byte> to(100'000);
  const auto lease = served.arena->lease("k", 60'000'000, kAnyIncarnation);
  const Status refused = guest->read(lease->first + 1, to, for_a_second());
  EXPECT_EQ(refused.code(), StatusCode::kNotFound) << refused.to_string();
  EXPECT_EQ(guest->write(77, to, for_a_second()).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(guest->broken());
  EXPECT_TRUE(guest->read(lease->first, to, for_a_second()).ok());
  served.arena->unlease(lease->first);
  EXPECT_EQ(guest->read(lease->first, to, for_a_second()).code(), StatusCode::kNotFound);
}

TEST_F(UcxStoreTest, SignalsStayTheProcesss) {
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  EXPECT_TRUE(hang_up.sa_handler == SIG_DFL || hang_up.sa_handler == SIG_IGN) << "UCX takes it when it is loaded";
}

TEST_F(UcxStoreTest, TheServiceOffersTheUrlAndNamesWhatUcxChose) {
  Metrics metrics;
  auto service =
      StoreService::start({.arena_bytes = 1 << 20, .store_ucx_url = "ucx://127.0.0.1:0"}, kToken, clock_, metrics);
  ASSERT_TRUE(service.ok()) << service.status().to_string();
  EXPECT_EQ((*service)->ucx_transports(), "");
  const auto store = open_store((*service)->ucx_url(), kToken, {}, clock_);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  ASSERT_TRUE((*store)->put_from("k", pattern(100'000)).ok());
  EXPECT_EQ((*service)->ucx_transports(), static_cast<UcxStore&>(**store).transports());
}

TEST_F(UcxPortTest, APlaceIsGivenBackWhenItsBytesDontCome) {
  ServerOptions options = over_ucx();
  options.frame_us = 300'000;
  ServedArena served(8 << 20, options);
  ClientChannel channel(*parse_endpoint(served.server->ucx_url()), kToken, {}, clock_,
                        [](const Frame&, std::vector<Fd>) { return Status(); });
  const auto place = [&](std::string_view key) {
    return channel.call({.op = Op::kPlace, .text = key, .third = 50'000});
  };
  ASSERT_TRUE(place("k").ok());
  EXPECT_EQ(served.arena->stats().writing, 1u);
  EXPECT_TRUE(served.eventually([&] { return served.arena->stats().writing == 0; })) << "its time is over";
  const auto ticket = place("k");
  ASSERT_TRUE(ticket.ok() && ticket->status.ok());
  channel.hang_up();
  EXPECT_TRUE(served.eventually([&] { return served.arena->stats().writing == 0; })) << "its connection has ended";
  const auto guest = link(served, [](UcxSecret&) {});
  const std::vector<std::byte> value(50'000);
  EXPECT_EQ(guest->write(ticket->frame.third, value, for_a_second()).status().code(), StatusCode::kNotFound);
}

TEST(UcxTransports, OnlyTcpWithoutRdmaOrSharedMemoryIsAFallback) {
  EXPECT_TRUE(falls_back_to_tcp("tcp/eth0"));
  EXPECT_FALSE(falls_back_to_tcp("rc_mlx5/mlx5_0:1 tcp/eth0"));
  EXPECT_FALSE(falls_back_to_tcp("cma/memory posix/memory"));
  EXPECT_FALSE(falls_back_to_tcp("unknown"));
}

TEST(UcxMissing, ABuildWithoutUcxNamesWhatIsMissing) {
  if (ucx_is_there()) GTEST_SKIP() << "built with UCX";
  SystemClock clock;
  const auto arena = make_arena(clock, 1 << 20);
  ServerOptions options = over_ucx();
  options.token = kToken;
  const Status status = StoreServer::start(*arena, options).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.field(), "store_ucx_url");
  EXPECT_NE(status.message().find("libucx-dev"), std::string::npos);
}

}  // namespace
}  // namespace levada::store
