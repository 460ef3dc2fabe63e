// Publication of batches into an arena on a device (the CPU twin), after the behaviour spec's rules N6-N16 and T5-T9.
#include "store/batch_writer.h"

#include <gtest/gtest.h>

#include <thread>

#include "store/faulty_device_test.h"
#include "store/piece_hash.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

class BatchWriterTest : public ::testing::Test {
 protected:
  BatchWriterTest() { begin(64 * 1024); }
  void begin(std::uint64_t bytes) {
    writer_.reset();
    arena_ = make_arena(clock_, bytes, 1024, &device_);
    writer_ = *BatchWriter::create(*arena_);
  }
  void TearDown() override { arena_->check_invariants(); }
  BatchWriter::Item item(const std::string& key, std::size_t bytes, bool replace = false) {
    sources_.push_back(pattern(bytes, static_cast<unsigned>(sources_.size() + 1)));
    return {key, sources_.back(), replace};
  }
  auto publish(const std::vector<BatchWriter::Item>& items, std::int64_t wait_us = 0,
               const device::Event* ready = nullptr) {
    return writer_->publish(items, ready, clock_.now_us() + wait_us);
  }
  void expect_readable(const BatchWriter::Item& item) {
    const auto view = arena_->view(item.key);
    ASSERT_TRUE(view.ok()) << item.key;
    std::vector<std::byte> bytes(item.bytes.size());
    ASSERT_TRUE(arena_->read(*view, bytes).ok());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), item.bytes.begin(), item.bytes.end())) << item.key;
    EXPECT_EQ(view->info(), (ObjectInfo{item.bytes.size(), piece_hash(item.bytes)}));
  }
  std::uint64_t used() { return arena_->stats().used_bytes; }

  SystemClock clock_;
  FaultyDevice device_;
  std::list<std::vector<std::byte>> sources_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<BatchWriter> writer_;
};

TEST_F(BatchWriterTest, N6BlocksAreWholeUnitsAndAnEmptyObjectTakesOne) {
  const std::vector items = {item("a", 1), item("b", 513), item("c", 0)};
  ASSERT_TRUE(publish(items).ok());
  EXPECT_EQ(used(), 512u + 1024u + 512u);
  for (const auto& each : items) expect_readable(each);
}

TEST_F(BatchWriterTest, T5AFullArenaWaitsForFreesThenFails) {
  ASSERT_TRUE(publish({item("old", 60 * 1024)}).ok());
  const auto failed = publish({item("new", 8 * 1024)}, 20'000);
  EXPECT_EQ(failed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(arena_->stats().wait_timeouts, 1u);
  std::thread consumer([&] {
    while (arena_->stats().waits < 2) std::this_thread::yield();
    arena_->remove("old");
  });
  const auto next = item("new", 8 * 1024);
  EXPECT_TRUE(publish({next}, 10'000'000).ok());
  consumer.join();
  expect_readable(next);
}

TEST_F(BatchWriterTest, N12ABatchLargerThanTheArenaFailsAtOnceWithoutWaiting) {
  const auto failed = publish({item("a", 40 * 1024), item("b", 40 * 1024)}, 60'000'000);
  EXPECT_EQ(failed.status().code(), StatusCode::kPayloadTooLarge);
  EXPECT_EQ(arena_->stats().waits, 0u);
  EXPECT_EQ(used(), 0u);
}

TEST_F(BatchWriterTest, N13UsageReturnsExactlyWhenTheSecondObjectFindsNoSpace) {
  ASSERT_TRUE(publish({item("held", 32 * 1024)}).ok());
  const std::uint64_t before = used();
  EXPECT_FALSE(publish({item("a", 16 * 1024), item("b", 20 * 1024)}, 1'000).ok());
  EXPECT_EQ(used(), before);
  EXPECT_FALSE(arena_->find("a").has_value());
}

TEST_F(BatchWriterTest, T7ACopyIsOrderedAfterTheReadyEvent) {
  device::FakeStream producer;
  device::FakeEvent ready;
  std::vector<std::byte> rows(4096), late = pattern(4096, 9);
  producer.hold();
  ASSERT_TRUE(producer.copy(rows.data(), late.data(), rows.size()).ok());
  ASSERT_TRUE(producer.record(ready).ok());
  std::thread release([&] {
    ::usleep(20'000);
    producer.release();
  });
  const std::vector<BatchWriter::Item> items = {{"rows", rows}};
  ASSERT_TRUE(publish(items, 0, &ready).ok());
  release.join();
  EXPECT_EQ(rows, late);
  expect_readable(items[0]);
}

TEST_F(BatchWriterTest, T8AClashReleasesWhatWasPlacedAndReplaceRepublishes) {
  const auto first = item("k", 1000);
  ASSERT_TRUE(publish({first}).ok());
  const std::uint64_t before = used();
  EXPECT_EQ(publish({item("fresh", 2000), item("k", 3000)}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(used(), before);
  expect_readable(first);
  const auto second = item("k", 3000, /*replace=*/true);
  ASSERT_TRUE(publish({second}).ok());
  expect_readable(second);
}

TEST_F(BatchWriterTest, N15TwoEqualKeysInOneBatchClash) {
  EXPECT_EQ(publish({item("k", 10), item("k", 10)}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(used(), 0u);
}

TEST_F(BatchWriterTest, F34ADevicesErrorInACopyReleasesTheBatchAndRefusesTheNext) {
  const auto before = item("before", 1000);
  ASSERT_TRUE(publish({before}).ok());
  const std::uint64_t usage = used();
  device_.fail_after(1);
  EXPECT_EQ(publish({item("a", 1000), item("b", 1000)}).status().code(), StatusCode::kInternal);
  EXPECT_EQ(used(), usage);
  EXPECT_FALSE(arena_->find("a").has_value());
  device_.fail_after(-1);
  EXPECT_EQ(publish({item("c", 1000)}).status().code(), StatusCode::kUnavailable);
  expect_readable(before);
}

TEST_F(BatchWriterTest, T9SixtyFourSamplesThroughALargeAndASmallArenaArriveByteForByte) {
  for (const std::uint64_t capacity : {16u << 20, 2u << 20}) {
    begin(capacity);
    for (int i = 0; i < 64; ++i) {
      const auto sample =
          item("s/run:" + std::to_string(i) + "/g1/hidden_states", 104'000 + static_cast<std::size_t>(i));
      std::thread consumer([&, i] {  // takes the oldest away when the writer waits for space
        const std::string oldest = "s/run:" + std::to_string(i - 16) + "/g1/hidden_states";
        if (i >= 16) arena_->remove(oldest);
      });
      ASSERT_TRUE(publish({sample}, 10'000'000).ok());
      consumer.join();
      expect_readable(sample);
    }
    arena_->remove_prefix("s/");
    EXPECT_EQ(used(), 0u);
    EXPECT_EQ(arena_->stats().largest_free_bytes, capacity);
  }
}

}  // namespace
}  // namespace levada::store
