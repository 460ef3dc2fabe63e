// What UcxStore promises when its peer is gone, lies or is not there at all; what it does when all is well is in
// conformance_test.cc.
#include "store/ucx_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/test_store.h"

namespace levada::store {
namespace {

ServerOptions over_ucx() {
  ServerOptions options;
  options.ucx_url = "ucx://127.0.0.1:0";
  return options;
}

class UcxStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ucx_is_built_in()) GTEST_SKIP() << "built without UCX";
    served_ = std::make_unique<ServedArena>(8 << 20, over_ucx());
    url_ = served_->server->ucx_url();
  }
  // The whole object, by a new client.
  void expect_served(std::string_view key, std::span<const std::byte> value) {
    const auto store = served_->client(url_);
    std::vector<std::byte> to(value.size());
    const auto info = store->get_into(key, to);
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_TRUE(std::equal(to.begin(), to.end(), value.begin(), value.end()));
  }

  std::unique_ptr<ServedArena> served_;
  std::string url_;
};

TEST(UcxMissingTest, ABuildWithoutUcxNamesWhatIsMissing) {
  if (ucx_is_built_in()) GTEST_SKIP() << "built with UCX";
  const auto arena_memory = pattern(4096);
  const auto exported = UcxExport::create(arena_memory, UcxMemoryType::kHost, "127.0.0.1");
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(exported.status().message().find("libucx-dev"), std::string::npos);
}

TEST_F(UcxStoreTest, AWrongTokenIsRefusedAndTheOthersAreServed) {
  const auto value = pattern(100'000);
  ASSERT_TRUE(served_->arena->put_from("k", value).ok());
  const auto store = open_store(url_, "wrong", {}, served_->clock);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kUnauthenticated);
  expect_served("k", value);
}

TEST_F(UcxStoreTest, AReadLeavesNoLeaseBehind) {
  const auto value = pattern(1 << 20);
  ASSERT_TRUE(served_->arena->put_from("k", value).ok());
  expect_served("k", value);
  EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().leases == 0; }));
  std::vector<std::byte> shorter(10);
  EXPECT_FALSE(served_->client(url_)->get_into("k", shorter).ok());
  EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().leases == 0; }));
  EXPECT_EQ(served_->arena->remove("k"), RemoveOutcome::kFreed);
}

TEST_F(UcxStoreTest, ARestartedServerIsReadAgainAndItsOldObjectsAreGone) {
  const auto store = served_->client(url_);
  const auto value = pattern(1 << 20);
  std::vector<std::byte> to(value.size());
  ASSERT_TRUE(store->put_from("k", value).ok());
  ASSERT_TRUE(store->get_into("k", to).ok());
  const std::uint64_t before = store->incarnation();
  served_->stop();
  EXPECT_FALSE(store->get_into("k", to).ok());
  served_->start();
  EXPECT_EQ(store->get_into("k", to, before).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(store->put_from("k", pattern(1 << 20, 2)).ok());
  ASSERT_TRUE(store->get_into("k", to).ok());
  EXPECT_EQ(to, pattern(1 << 20, 2));
}

TEST_F(UcxStoreTest, AClientThatIsKilledGivesBackItsLeasesAndHurtsNobody) {
  const auto value = pattern(4 << 20);
  ASSERT_TRUE(served_->arena->put_from("k", value).ok());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // reads until it is killed
    const auto store = open_store(url_, kToken, {}, served_->clock);
    std::vector<std::byte> to(value.size());
    while (store.ok() && (*store)->get_into("k", to).ok()) {
      [[maybe_unused]] const long written = ::write(ready[1], "x", 1);
    }
    ::_exit(1);
  }
  char byte;
  ::close(ready[1]);
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::usleep(20'000);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ready[0]);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().leases == 0; }));
  expect_served("k", value);
}

TEST_F(UcxStoreTest, DamagedDescriptionsAreRefused) {
  for (const std::size_t bytes : {0u, 1u, 23u, 24u, 100u}) {
    const auto reader = UcxReader::open(std::string(bytes, '\7'), "127.0.0.1");
    ASSERT_FALSE(reader.ok()) << bytes;
    EXPECT_EQ(reader.status().code(), StatusCode::kDataLoss);
  }
}

TEST_F(UcxStoreTest, BytesOutsideTheExportedMemoryAreNotAskedFor) {
  const auto memory = pattern(4096);
  const auto exported = UcxExport::create(memory, UcxMemoryType::kHost, "127.0.0.1");
  ASSERT_TRUE(exported.ok()) << exported.status().to_string();
  const auto reader = UcxReader::open((*exported)->description(), "127.0.0.1");
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> to(64);
  const auto base = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::int64_t deadline_us = served_->clock.now_us() + 5'000'000;
  EXPECT_TRUE((*reader)->read(base + 4032, to, deadline_us, served_->clock).ok());
  EXPECT_TRUE(std::equal(to.begin(), to.end(), memory.begin() + 4032));
  for (const std::uint64_t address : {base + 4033, base - 1, std::uint64_t{0}, ~std::uint64_t{0}})
    EXPECT_EQ((*reader)->read(address, to, deadline_us, served_->clock).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace levada::store
