// What every backend must do, the same test for each: in the owner's process, through shared memory, over TCP and UCX; and
// the same of an arena on a device, here the CPU twin.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/hash.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

struct Backend {
  const char* name;
  bool on_device;
  std::unique_ptr<ObjectStore> (*open)(ServedArena&);
};

std::unique_ptr<ObjectStore> open_local(ServedArena& served) { return std::make_unique<LocalStore>(*served.arena); }
std::unique_ptr<ObjectStore> open_mapped(ServedArena& served) { return served.client(served.server->shm_url()); }
std::unique_ptr<ObjectStore> open_ucx(ServedArena& served) { return served.client(served.server->ucx_url()); }
std::unique_ptr<ObjectStore> open_tcp(ServedArena& served) { return served.client(served.server->tcp_url()); }

class ConformanceTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    const bool over_ucx = GetParam().open == open_ucx;
    if (over_ucx && !ucx_is_there()) GTEST_SKIP() << "built without UCX";
    ServerOptions options;
    if (over_ucx) options.ucx_url = "ucx://127.0.0.1:0";
    served_ = std::make_unique<ServedArena>(8 << 20, options, GetParam().on_device ? device_.get() : nullptr);
    store_ = GetParam().open(*served_);
  }
  void TearDown() override {
    store_.reset();
    if (served_ == nullptr) return;
    EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().views == 0; }));
    served_->arena->check_invariants();
  }
  std::vector<std::byte> read(std::string_view key, std::size_t bytes) {
    std::vector<std::byte> to(bytes);
    const auto info = store_->get_into(key, to);
    EXPECT_TRUE(info.ok()) << info.status().to_string();
    return to;
  }

  std::unique_ptr<device::Device> device_ = device::make_cpu_device();
  std::unique_ptr<ServedArena> served_;
  std::unique_ptr<ObjectStore> store_;
};

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceTest,
                         ::testing::Values(Backend{"local", false, open_local}, Backend{"shm", false, open_mapped},
                                           Backend{"tcp", false, open_tcp}, Backend{"ucx", false, open_ucx},
                                           Backend{"local_device", true, open_local},
                                           Backend{"nvlink", true, open_mapped}, Backend{"tcp_device", true, open_tcp},
                                           Backend{"ucx_device", true, open_ucx}),
                         [](const auto& info) { return info.param.name; });

TEST_P(ConformanceTest, HasTheFourOperationsAndNeverEvictsWhatIsPinned) {
  EXPECT_TRUE(check_capabilities(store_->capabilities()).ok());
  EXPECT_EQ(store_->incarnation(), served_->arena->incarnation());
  EXPECT_NE(store_->incarnation(), kAnyIncarnation);
}

TEST_P(ConformanceTest, AValueIsExactlyTheBytesThatWerePut) {
  for (std::size_t bytes : {0, 1, 511, 512, 513, 4096, 65535, 65536, 100'001, 3 << 20}) {
    const std::string key = "s/run:a/g1/" + std::to_string(bytes);
    const auto value = pattern(bytes);
    ASSERT_TRUE(store_->put_from(key, value).ok());
    EXPECT_EQ(read(key, bytes), value) << bytes;
    const auto info = store_->is_exist(key);
    ASSERT_TRUE(info.ok() && info->has_value());
    EXPECT_EQ(**info, (ObjectInfo{bytes, hash64(value)})) << bytes;
    const auto view = store_->view(key);
    ASSERT_TRUE(view.ok());
    EXPECT_TRUE(std::equal(view->bytes().begin(), view->bytes().end(), value.begin(), value.end()));
    EXPECT_TRUE(view->still_valid());
  }
}

TEST_P(ConformanceTest, AChecksumThatTheWriterKnowsIsKept) {
  ASSERT_TRUE(store_->put_from("k", pattern(1000), {.checksum = 42}).ok());
  EXPECT_EQ((*store_->is_exist("k"))->checksum, 42u);
}

TEST_P(ConformanceTest, SeveralAreRemovedInTheOrderAskedFor) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) {
    names.push_back("k" + std::to_string(i));
    if (i != 7) {
      ASSERT_TRUE(store_->put_from(names.back(), pattern(100)).ok());
    }
  }
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const auto outcomes = store_->remove_all(keys);
  ASSERT_TRUE(outcomes.ok());
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ((*outcomes)[i], i == 7 ? RemoveOutcome::kAbsent : RemoveOutcome::kFreed) << i;
  EXPECT_EQ(served_->arena->stats().used_bytes, 0u);
}

TEST_P(ConformanceTest, AnAbsentObjectIsAnAnswerNotAFailure) {
  const auto info = store_->is_exist("nothing");
  ASSERT_TRUE(info.ok());
  EXPECT_FALSE(info->has_value());
  std::vector<std::byte> to(8);
  EXPECT_EQ(store_->get_into("nothing", to).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->view("nothing").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->lease("nothing", 0).status().code(), StatusCode::kNotFound);
}

TEST_P(ConformanceTest, ADestinationOfAnotherLengthIsRefusedAndNothingIsRead) {
  ASSERT_TRUE(store_->put_from("k", pattern(100)).ok());
  for (std::size_t bytes : {0, 99, 101}) {
    std::vector<std::byte> to(bytes, std::byte{0xEE});
    const Status status = store_->get_into("k", to).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_EQ(to, std::vector<std::byte>(bytes, std::byte{0xEE}));
  }
}

// B32: two writers of one key.
TEST_P(ConformanceTest, B32TheSecondWriterOfAKeyIsToldAndTheFirstBytesStay) {
  for (std::size_t bytes : {10, 300'000}) {
    const std::string key = "k" + std::to_string(bytes);
    ASSERT_TRUE(store_->put_from(key, pattern(bytes, 1)).ok());
    const Status second = store_->put_from(key, pattern(bytes, 2));
    EXPECT_EQ(second.code(), StatusCode::kAlreadyExists) << second.to_string();
    EXPECT_EQ(read(key, bytes), pattern(bytes, 1));
  }
  EXPECT_EQ(served_->arena->stats().clashes, 2u);
}

// B19 and fault 24: "already gone" is not a failure.
TEST_P(ConformanceTest, B19RemovingIsIdempotentAndFreesAtOnce) {
  ASSERT_TRUE(store_->put_from("a", pattern(1000)).ok());
  EXPECT_EQ(*store_->remove("a"), RemoveOutcome::kFreed);
  EXPECT_EQ(*store_->remove("a"), RemoveOutcome::kAbsent);
  EXPECT_EQ(*store_->remove("never there"), RemoveOutcome::kAbsent);
  EXPECT_EQ(served_->arena->stats().used_bytes, 0u);
  EXPECT_EQ(served_->arena->stats().free_unknown, 2u);
  ASSERT_TRUE(store_->put_from("a", pattern(1000, 9)).ok()) << "a removed key may be written again";
  EXPECT_EQ(read("a", 1000), pattern(1000, 9));
}

TEST_P(ConformanceTest, APrefixRemovesItsObjectsAndNoOthers) {
  for (const char* key : {"s/a/g1/x", "s/a/g1/y", "s/a/g2/x", "s/ab/g1/x"})
    ASSERT_TRUE(store_->put_from(key, pattern(10)).ok());
  EXPECT_EQ(*store_->remove_prefix("s/a/g1/"), (RemovedCount{.freed = 2}));
  EXPECT_EQ(*store_->remove_prefix("s/a/g1/"), RemovedCount{});
  EXPECT_TRUE((*store_->is_exist("s/a/g2/x")).has_value());
  EXPECT_TRUE((*store_->is_exist("s/ab/g1/x")).has_value());
  EXPECT_EQ(store_->remove_prefix("").status().code(), StatusCode::kInvalidArgument);
}

// B31: the bytes of a view or a lease stay what they were until it is let go.
TEST_P(ConformanceTest, B31ARemovedObjectIsRefusedAtOnceAndCountedUntilItsLeaseIsLetGo) {
  ASSERT_TRUE(store_->put_from("k", pattern(5000)).ok());
  auto lease = store_->lease("k", 0);
  ASSERT_TRUE(lease.ok()) << lease.status().to_string();
  EXPECT_EQ(lease->info(), (ObjectInfo{5000, hash64(pattern(5000))}));

  EXPECT_EQ(*store_->remove("k"), RemoveOutcome::kStillRead);
  EXPECT_FALSE((*store_->is_exist("k")).has_value());
  EXPECT_EQ(store_->view("k").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->lease("k", 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*store_->remove("k"), RemoveOutcome::kStillRead) << "asked again, it still counts";
  EXPECT_EQ(store_->put_from("k", pattern(5000, 2)).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(served_->arena->stats().lingering, 1u);

  lease->release();
  EXPECT_EQ(*store_->remove("k"), RemoveOutcome::kAbsent);
  EXPECT_EQ(served_->arena->stats().used_bytes, 0u);
}

TEST_P(ConformanceTest, B31TheBytesUnderAViewAreNeverUsedAnew) {
  ASSERT_TRUE(store_->put_from("old", pattern(6 << 20, 1)).ok());
  auto view = store_->view("old");
  ASSERT_TRUE(view.ok());
  const bool zero_copy = store_->capabilities().zero_copy;
  EXPECT_EQ(*store_->remove("old"), zero_copy ? RemoveOutcome::kStillRead : RemoveOutcome::kFreed);
  EXPECT_EQ(view->still_valid(), !zero_copy) << "told after use";
  const Status other = store_->put_from("new", pattern(6 << 20, 2));
  EXPECT_EQ(other.ok(), !zero_copy) << "there is no room beside the old one: " << other.to_string();
  EXPECT_EQ(std::memcmp(view->bytes().data(), pattern(6 << 20, 1).data(), 6 << 20), 0);
  view->release();
  EXPECT_FALSE(view->still_valid());
  if (zero_copy) {
    EXPECT_TRUE(store_->put_from("new", pattern(6 << 20, 2)).ok());
  }
}

TEST_P(ConformanceTest, ALeaseEndsWithItsTime) {
  ASSERT_TRUE(store_->put_from("k", pattern(100)).ok());
  auto lease = store_->lease("k", 20'000);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(*store_->remove("k"), RemoveOutcome::kStillRead);
  EXPECT_TRUE(served_->eventually([&] { return *store_->remove("k") == RemoveOutcome::kAbsent; }));
  EXPECT_EQ(served_->arena->stats().leases_expired, 1u);
  EXPECT_EQ(store_->lease("k", -1).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(ConformanceTest, AnIncarnationThatIsNotThisOneHasNothing) {
  ASSERT_TRUE(store_->put_from("k", pattern(100)).ok());
  std::vector<std::byte> to(100);
  EXPECT_TRUE(store_->get_into("k", to, store_->incarnation()).ok());
  const Status status = store_->get_into("k", to, store_->incarnation() + 1).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.field(), "incarnation");
  EXPECT_EQ(store_->lease("k", 0, store_->incarnation() + 1).status().field(), "incarnation");
}

TEST_P(ConformanceTest, KeysOfTheWrongLengthAreRefused) {
  const std::string longest(kMaxKeyBytes, 'k'), too_long(kMaxKeyBytes + 1, 'k');
  ASSERT_TRUE(store_->put_from(longest, pattern(10)).ok());
  EXPECT_EQ(read(longest, 10), pattern(10));
  std::vector<std::byte> to(10);
  for (const std::string& key : {std::string(), too_long}) {
    EXPECT_EQ(store_->put_from(key, pattern(10)).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store_->get_into(key, to).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store_->is_exist(key).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store_->remove(key).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store_->lease(key, 0).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_P(ConformanceTest, Fault28AnObjectLargerThanTheArenaIsRefusedAtOnceWithBothSizes) {
  const std::uint64_t capacity = served_->arena->capacity_bytes();
  const Status status = store_->put_from("k", pattern(capacity + 1), {.wait_us = 10'000'000});
  EXPECT_EQ(status.code(), StatusCode::kPayloadTooLarge);
  EXPECT_NE(status.message().find(std::to_string(capacity)), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(std::to_string(capacity + 1)), std::string::npos) << status.message();
  EXPECT_TRUE(store_->put_from("whole", pattern(capacity)).ok()) << "what just fits is taken";
}

TEST_P(ConformanceTest, Fault27AFullArenaIsAClearErrorAfterTheWaitAndEverythingGoesOn) {
  ASSERT_TRUE(store_->put_from("big", pattern(6 << 20)).ok());
  for (std::int64_t wait_us : {0, 30'000}) {
    const Status status = store_->put_from("more", pattern(4 << 20), {.wait_us = wait_us});
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
    EXPECT_NE(status.message().find(std::to_string(4 << 20)), std::string::npos) << status.message();
  }
  EXPECT_EQ(served_->arena->stats().objects, 1u);
  EXPECT_EQ(read("big", 6 << 20), pattern(6 << 20));
  EXPECT_TRUE(store_->put_from("small", pattern(1 << 20)).ok());
}

TEST_P(ConformanceTest, Fault26AFullArenaWaitsForFreesAndThenTakesTheObject) {
  ASSERT_TRUE(store_->put_from("big", pattern(6 << 20)).ok());
  std::thread frees([&] {
    EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().waits > 0; }));
    served_->arena->remove("big");
  });
  const Status status = store_->put_from("more", pattern(4 << 20, 3), {.wait_us = 10'000'000});
  frees.join();
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(read("more", 4 << 20), pattern(4 << 20, 3));
}

// T9: 64 capture-shaped samples through an arena that holds a few of them.
TEST_P(ConformanceTest, T9SixtyFourSamplesThroughASmallArenaAreReadExactlyAndNothingIsLeft) {
  constexpr unsigned kSamples = 64;
  const auto bytes_of = [](unsigned sample) { return std::size_t{(sample % 7 + 1) * 300'000 + sample * 17}; };
  std::thread producer([&] {
    for (unsigned sample = 0; sample < kSamples; ++sample) {
      const Status put = served_->arena->put_from("t9/" + std::to_string(sample), pattern(bytes_of(sample), sample),
                                                  {.wait_us = 60'000'000});
      ASSERT_TRUE(put.ok()) << put.to_string();
    }
  });
  EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().waits > 0; })) << "it is full before we begin";
  for (unsigned sample = 0; sample < kSamples; ++sample) {
    const std::string key = "t9/" + std::to_string(sample);
    ASSERT_TRUE(served_->eventually([&] { return store_->is_exist(key)->has_value(); }));
    {
      const auto view = store_->view(key);
      ASSERT_TRUE(view.ok()) << view.status().to_string();
      ASSERT_EQ(view->bytes().size(), bytes_of(sample));
      ASSERT_EQ(hash64(view->bytes()), hash64(pattern(bytes_of(sample), sample)));
      ASSERT_EQ(hash64(view->bytes()), view->info().checksum);
    }
    ASSERT_EQ(*store_->remove(key), RemoveOutcome::kFreed);
  }
  producer.join();
  const ArenaStats stats = served_->arena->stats();
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.largest_free_bytes, stats.capacity_bytes) << "in one piece again";
}

TEST_P(ConformanceTest, ManyThreadsOverOneClientNeverMixTheirBytes) {
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned turn = 0; turn < 30; ++turn) {
        const std::string key = std::to_string(thread) + "/" + std::to_string(turn);
        const auto value = pattern(1000 * (thread + 1) + turn * 3000, thread * 100 + turn);
        ASSERT_TRUE(store_->put_from(key, value, {.wait_us = 5'000'000}).ok());
        std::vector<std::byte> to(value.size());
        ASSERT_TRUE(store_->get_into(key, to).ok());
        ASSERT_EQ(to, value);
        ASSERT_EQ(*store_->remove(key), RemoveOutcome::kFreed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(served_->eventually([&] { return served_->arena->stats().used_bytes == 0; }));
}

TEST(Capabilities, T3ABackendThatLacksAnOperationOrEvictsPinsIsRefusedAtConstruction) {
  const Capabilities whole{true, true, true, true, false, false};
  EXPECT_TRUE(check_capabilities(whole).ok());
  const auto without = [&](auto change) {
    Capabilities some = whole;
    change(some);
    return check_capabilities(some);
  };
  EXPECT_NE(without([](auto& c) { c.is_exist = false; }).message().find("is_exist"), std::string::npos);
  EXPECT_NE(without([](auto& c) { c.put_from = false; }).message().find("put_from"), std::string::npos);
  EXPECT_NE(without([](auto& c) { c.get_into = false; }).message().find("get_into"), std::string::npos);
  EXPECT_NE(without([](auto& c) { c.remove = false; }).message().find("remove"), std::string::npos);
  EXPECT_NE(without([](auto& c) { c.evictable_pins = true; }).message().find("evict"), std::string::npos);
  EXPECT_EQ(check_capabilities(Capabilities{}).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace levada::store
