// B35 and faults 2, 3: servers and clients that end, in good order and by SIGKILL, and what the others see.
#include <gtest/gtest.h>

#include <cstring>

#include "store/child_test.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

class RestartTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string& url(const ServedArena& served) const {
    return std::string_view(GetParam()) == "shm" ? served.server->shm_url() : served.server->tcp_url();
  }
  ServedArena served_;
};
INSTANTIATE_TEST_SUITE_P(Backends, RestartTest, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(RestartTest, B35TheRequestAfterAServersRestartWorksAndOldObjectsAreGone) {
  const auto client = served_.client(url(served_));
  ASSERT_TRUE(client->put_from("k", pattern(1000, 1)).ok());
  const std::uint64_t before = client->incarnation();
  served_.stop();
  EXPECT_EQ(client->is_exist("k").status().code(), StatusCode::kUnavailable);
  served_.start();

  std::vector<std::byte> to(1000);
  EXPECT_EQ(client->get_into("k", to).status().code(), StatusCode::kNotFound);
  EXPECT_NE(client->incarnation(), before);
  ASSERT_TRUE(client->put_from("k", pattern(1000, 2)).ok());
  ASSERT_TRUE(client->get_into("k", to).ok());
  EXPECT_EQ(to, pattern(1000, 2));
}

// Fault 3: the same key may be there again; whoever holds a ref of the old life must not get the new bytes.
TEST_P(RestartTest, Fault3ARefOfTheOldLifeNeverGetsBytesOfTheNewOne) {
  const auto client = served_.client(url(served_));
  ASSERT_TRUE(client->put_from("k", pattern(1000, 1)).ok());
  const std::uint64_t old_life = client->incarnation();
  served_.stop();
  served_.start();
  ASSERT_TRUE(served_.arena->put_from("k", pattern(1000, 2)).ok());
  std::vector<std::byte> to(1000);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = client->get_into("k", to, old_life).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(status.field(), "incarnation");
    EXPECT_EQ(client->view("k", old_life).status().field(), "incarnation");
    EXPECT_EQ(client->lease("k", 0, old_life).status().field(), "incarnation");
  }
  EXPECT_TRUE(client->get_into("k", to, client->incarnation()).ok());
}

TEST_P(RestartTest, AViewOutlivesItsServerAndSaysSo) {
  const auto client = served_.client(url(served_));
  ASSERT_TRUE(client->put_from("k", pattern(1000, 1)).ok());
  auto view = client->view("k");
  auto lease = client->lease("k", 0);
  ASSERT_TRUE(view.ok() && lease.ok());
  served_.stop();
  EXPECT_EQ(std::memcmp(view->bytes().data(), pattern(1000, 1).data(), 1000), 0);
  if (client->capabilities().zero_copy) {
    EXPECT_FALSE(view->still_valid());
  }
  served_.start();
  ASSERT_TRUE(client->put_from("other", pattern(10)).ok());
  lease->release();  // of a server that is gone: nothing happens, not even to the new one
  auto fresh = client->lease("other", 0);
  EXPECT_TRUE(fresh.ok());
  EXPECT_EQ(*client->remove("other"), RemoveOutcome::kStillRead);
}

// B33 across processes: what a killed reader held is given back.
TEST(KilledClient, B33ItsViewsAndLeasesAreGivenBack) {
  Child child([](const std::string& url, int done) {
    SystemClock clock;
    auto store = open_store(url, kToken, {}, clock);
    auto view = (*store)->view("a");
    auto lease = (*store)->lease("b", 0);
    const bool good = view.ok() && lease.ok() && view->bytes()[5] == pattern(1000)[5];
    [[maybe_unused]] const long written = ::write(done, good ? "good" : "bad", 5);
    ::pause();
  });
  ServedArena served;
  ASSERT_TRUE(served.arena->put_from("a", pattern(1000)).ok());
  ASSERT_TRUE(served.arena->put_from("b", pattern(1000)).ok());
  child.begin(served.server->shm_url());
  ASSERT_EQ(child.wait(), "good");
  EXPECT_EQ(served.arena->remove("a"), RemoveOutcome::kStillRead) << "held by a slot in the child's shared memory";
  EXPECT_EQ(served.arena->remove("b"), RemoveOutcome::kStillRead);
  child.kill();
  EXPECT_TRUE(served.eventually([&] { return served.arena->stats().used_bytes == 0; }));
  EXPECT_EQ(served.arena->stats().readers, 0u);
  served.arena->check_invariants();
}

TEST(KilledServer, Fault2ItsClientsNoticeAndTheNextServerServesThem) {
  TemporaryFolder folder;
  const std::string shm_url = "shm://" + (folder.path() / "s").string();
  SystemClock clock;
  const auto start = [&](Arena& arena, const std::string& tcp_url) {
    ServerOptions options;
    options.tcp_url = tcp_url;
    options.shm_url = shm_url;
    options.token = kToken;
    return StoreServer::start(arena, options);
  };
  Child child([&](const std::string& url, int done) {
    auto arena = make_arena(clock, 1 << 20);
    auto server = start(*arena, url);
    const bool good = server.ok() && arena->put_from("k", pattern(1000)).ok();
    const std::string answer = good ? (*server)->tcp_url() : "bad";
    [[maybe_unused]] const long written = ::write(done, answer.c_str(), answer.size() + 1);
    ::pause();
  });
  child.begin("tcp://127.0.0.1:0");
  const std::string tcp_url = child.wait();
  ASSERT_TRUE(tcp_url.starts_with("tcp://")) << tcp_url;
  auto tcp = open_store(tcp_url, kToken, {.timeout_us = 5'000'000}, clock);
  auto shm = open_store(shm_url, kToken, {.timeout_us = 5'000'000}, clock);
  ASSERT_TRUE(tcp.ok() && shm.ok());
  auto view = (*shm)->view("k");
  ASSERT_TRUE(view.ok());
  child.kill();

  ::usleep(2'000);  // a killed server is noticed within a millisecond
  std::vector<std::byte> to(1000);
  for (auto* store : {tcp->get(), shm->get()})
    EXPECT_EQ(store->get_into("k", to).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(std::memcmp(view->bytes().data(), pattern(1000).data(), 1000), 0) << "mapped bytes stay";

  auto arena = make_arena(clock, 1 << 20);
  auto server = start(*arena, tcp_url);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  for (auto* store : {tcp->get(), shm->get()}) {
    EXPECT_EQ(store->get_into("k", to).status().code(), StatusCode::kNotFound);
    ASSERT_TRUE(store->put_from("k", pattern(1000, 2)).ok());
    ASSERT_TRUE(store->get_into("k", to).ok());
    EXPECT_EQ(to, pattern(1000, 2));
    EXPECT_EQ(*store->remove("k"), RemoveOutcome::kFreed);
  }
}

TEST(ReaderSlotsTest, AClientThatViewsTooMuchAtOnceIsToldTheLimit) {
  ServedArena served;
  const auto client = served.client(served.server->shm_url());
  ASSERT_TRUE(client->put_from("k", pattern(100)).ok());
  std::vector<ObjectView> views;
  for (std::size_t i = 0; i < ReaderSlots::kSlots; ++i) views.push_back(*client->view("k"));
  const Status status = client->view("k").status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("512"), std::string::npos);
  views.pop_back();
  EXPECT_TRUE(client->view("k").ok());
  EXPECT_EQ(*client->remove("k"), RemoveOutcome::kStillRead);
  views.clear();
  EXPECT_EQ(*client->remove("k"), RemoveOutcome::kFreed)
      << "slots are cleared without a word; who asks again finds out";
}

TEST(SharedMemory, AReaderCannotWriteTheArena) {
  ServedArena served;
  auto memory = served.arena->memory().read_only();
  ASSERT_TRUE(memory.ok());
  EXPECT_FALSE(MemoryFile::map(Fd(::dup(memory->get())), MemoryFile::Access::kReadWrite, 1).ok());
  EXPECT_NE(::ftruncate(served.arena->memory().descriptor(), 0), 0) << "nobody can cut it";
}

}  // namespace
}  // namespace levada::store
