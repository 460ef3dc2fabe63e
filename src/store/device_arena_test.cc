// What is special about an arena on a device: who may map it, how a client measures what it reads, what outlives whom.
#include <gtest/gtest.h>
#include <unistd.h>

#include "store/batch_writer.h"
#include "store/child_test.h"
#include "store/faulty_device_test.h"
#include "store/piece_hash.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

class DeviceArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<ObjectStore> client() { return served_.client(served_.server->shm_url()); }
  std::unique_ptr<device::Device> device_ = device::make_cpu_device();
  ServedArena served_{8 << 20, {}, device_.get()};
};

TEST_F(DeviceArenaTest, ItsUrlNamesNvlink) {
  EXPECT_TRUE(served_.server->shm_url().starts_with("nvlink:///"));
  EXPECT_TRUE(client()->capabilities().on_device);
  EXPECT_FALSE(served_.client(served_.server->tcp_url())->capabilities().on_device);
}

TEST_F(DeviceArenaTest, AClientWithoutADeviceReadsThroughTheSocket) {
  ASSERT_TRUE(served_.arena->put_from("k", pattern(100'000)).ok());
  auto store = *open_store(served_.server->shm_url(), kToken, {}, served_.clock);
  EXPECT_FALSE(store->capabilities().on_device);
  std::vector<std::byte> to(100'000);
  ASSERT_TRUE(store->get_into("k", to).ok());
  EXPECT_EQ(to, pattern(100'000));
}

TEST_F(DeviceArenaTest, TheOtherSchemeIsRefusedOnBothSides) {
  const std::string path = served_.server->shm_url().substr(std::string("nvlink://").size());
  EXPECT_EQ(open_store("shm://" + path, kToken, {}, served_.clock).status().code(), StatusCode::kDataLoss);
  ServerOptions options;
  options.shm_url = "shm:///tmp/never";
  EXPECT_EQ(StoreServer::start(*served_.arena, options).status().field(), "store_shm_url");
}

TEST_F(DeviceArenaTest, T5FabricRequiredRefusesToStartWithoutIt) {
  const auto arena = Arena::create({.device = device_.get(), .fabric = device::FabricUse::kRequired}, served_.clock);
  EXPECT_EQ(arena.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(arena.status().field(), "fabric");
}

TEST_F(DeviceArenaTest, AFetchMeasuresWhatArrivedAndTakesOneWait) {
  const auto store = client();
  std::vector<std::vector<std::byte>> to;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < 5; ++i) {
    keys.push_back("k" + std::to_string(i));
    to.emplace_back(20'000 * i);
    ASSERT_TRUE(store->put_from(keys[i], pattern(to[i].size(), static_cast<unsigned>(i)), {}).ok());
  }
  std::vector<ObjectStore::Fetch> fetches;
  for (std::size_t i = 0; i < 5; ++i) fetches.push_back({keys[i], to[i]});
  ASSERT_TRUE(store->fetch(fetches).ok());
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(to[i], pattern(to[i].size(), static_cast<unsigned>(i)));
    EXPECT_EQ(fetches[i].checksum, piece_hash(to[i]));
  }
}

TEST_F(DeviceArenaTest, AFetchOfAnythingMissingReadsNothing) {
  const auto store = client();
  ASSERT_TRUE(store->put_from("there", pattern(64), {}).ok());
  std::vector<std::byte> first(64), second(64);
  std::vector<ObjectStore::Fetch> fetches = {{"there", first}, {"gone", second}};
  EXPECT_EQ(store->fetch(fetches).code(), StatusCode::kNotFound);
  EXPECT_EQ(first, std::vector<std::byte>(64));
  EXPECT_EQ(store->fetch(fetches, served_.arena->incarnation() + 1).field(), "incarnation");
}

TEST_F(DeviceArenaTest, AReadersErrorIsAStatusAndTheObjectStays) {
  FaultyDevice faulty;
  auto store = *open_store(served_.server->shm_url(), kToken, {.device = &faulty}, served_.clock);
  ASSERT_TRUE(store->put_from("k", pattern(100), {}).ok());
  faulty.fail_after(0);
  std::vector<std::byte> to(100);
  EXPECT_EQ(store->get_into("k", to).status().code(), StatusCode::kInternal);
  faulty.fail_after(-1);
  EXPECT_TRUE(store->get_into("k", to).ok());
  EXPECT_EQ(to, pattern(100));
}

TEST_F(DeviceArenaTest, AConsumerKilledMidReadHoldsNothingForEver) {
  ASSERT_TRUE(served_.arena->put_from("k", pattern(1000)).ok());
  const std::string url = served_.server->shm_url();
  int said[2];
  ASSERT_EQ(::pipe(said), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    const auto device = device::make_cpu_device();
    auto store = open_store(url, kToken, {.device = device.get()}, served_.clock);
    const auto view = store.ok() ? (*store)->view("k") : Result<ObjectView>(store.status());
    const char done = view.ok() ? 'y' : 'n';
    [[maybe_unused]] const long written = ::write(said[1], &done, 1);
    ::pause();
    ::_exit(0);
  }
  Doomed child(process);
  char answer = 0;
  ASSERT_EQ(::read(said[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(served_.arena->remove("k"), RemoveOutcome::kStillRead);
  child.kill();
  EXPECT_TRUE(served_.eventually([&] { return served_.arena->stats().used_bytes == 0; }));
  ::close(said[0]);
  ::close(said[1]);
}

TEST_F(DeviceArenaTest, AWriterThatDiesMidCopyLeavesNothingReadable) {
  {
    auto slot = served_.arena->reserve("k", 4096, 0);
    ASSERT_TRUE(slot.ok());
    EXPECT_EQ(client()->view("k").status().code(), StatusCode::kNotFound);
  }
  EXPECT_EQ(served_.arena->stats().used_bytes, 0u);
}

TEST_F(DeviceArenaTest, AViewOutlivesTheServersMemoryButNotItsWord) {
  const auto store = client();
  ASSERT_TRUE(store->put_from("k", pattern(1000), {}).ok());
  const auto view = store->view("k");
  ASSERT_TRUE(view.ok() && view->still_valid());
  served_.stop();
  EXPECT_FALSE(view->still_valid());
  const auto expected = pattern(1000);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), view->bytes().begin()));
}

}  // namespace
}  // namespace levada::store
