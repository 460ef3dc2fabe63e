#include "store/arena.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <thread>

#include "base/hash.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

constexpr std::uint64_t kUnit = FreeList::kUnitBytes;

class ArenaTest : public ::testing::Test {
 protected:
  void TearDown() override { arena_->check_invariants(); }
  Result<Slot> reserve(std::string_view key, std::uint64_t bytes) { return arena_->reserve(key, bytes, 0); }
  std::uint64_t used() { return arena_->stats().used_bytes; }

  ManualClock clock_;
  std::unique_ptr<Arena> arena_ = make_arena(clock_, 10 * kUnit, 8);
};

TEST_F(ArenaTest, AnObjectIsReadableOnceItsSlotIsSealedAndNotBefore) {
  auto slot = reserve("k", 3);
  ASSERT_TRUE(slot.ok());
  EXPECT_FALSE(arena_->find("k").has_value());
  EXPECT_EQ(arena_->view("k").status().code(), StatusCode::kNotFound);
  std::memcpy(slot->bytes().data(), "abc", 3);
  const auto info = slot->seal();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->checksum, hash64(std::as_bytes(std::span("abc", 3))));
  EXPECT_EQ(arena_->find("k"), *info);
  EXPECT_EQ(std::memcmp(arena_->view("k")->bytes().data(), "abc", 3), 0);
}

TEST_F(ArenaTest, ASlotDroppedUnsealedFreesItsMemoryAndItsKey) {
  { auto slot = reserve("k", 5 * kUnit); }
  EXPECT_EQ(used(), 0u);
  auto moved = reserve("k", kUnit);
  ASSERT_TRUE(moved.ok());
  Slot other = *std::move(moved);
  other = *reserve("l", kUnit);
  EXPECT_EQ(used(), kUnit) << "assigning to a slot drops what it held";
  EXPECT_TRUE(reserve("k", kUnit).ok());
}

// Fault 4: a batch of which one object fails leaves nothing behind.
TEST_F(ArenaTest, Fault4ABatchThatFailsInTheMiddleRestoresTheUsage) {
  ASSERT_TRUE(arena_->put_from("before", pattern(kUnit)).ok());
  {
    std::vector<Slot> batch;
    for (const char* key : {"a", "b", "c"}) batch.push_back(*reserve(key, 2 * kUnit));
    EXPECT_EQ(reserve("d", 4 * kUnit).status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(used(), kUnit);
  EXPECT_FALSE(arena_->find("a").has_value());
}

// Fault 29, T8: a clash releases what the batch has placed and leaves the old object alone.
TEST_F(ArenaTest, Fault29AClashReleasesTheBatchAndTheOldObjectIsIntact) {
  ASSERT_TRUE(arena_->put_from("old", pattern(kUnit, 7)).ok());
  {
    auto placed = reserve("new", kUnit);
    ASSERT_TRUE(placed.ok());
    EXPECT_EQ(reserve("old", kUnit).status().code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(reserve("new", kUnit).status().code(), StatusCode::kAlreadyExists) << "twice in one batch is a clash too";
  }
  EXPECT_EQ(used(), kUnit);
  EXPECT_EQ(arena_->find("old")->checksum, hash64(pattern(kUnit, 7)));
  EXPECT_EQ(arena_->stats().clashes, 2u);
}

TEST_F(ArenaTest, Fault28WhatCanNeverFitIsRefusedAtTheDoorAloneOrTogether) {
  EXPECT_EQ(reserve("k", 10 * kUnit + 1).status().code(), StatusCode::kPayloadTooLarge);
  EXPECT_EQ(reserve("k", ~std::uint64_t{0}).status().code(), StatusCode::kPayloadTooLarge);
  EXPECT_EQ(arena_->stats().waits, 0u);
  const std::uint64_t fits[] = {5 * kUnit, 5 * kUnit}, too_many[] = {5 * kUnit, 4 * kUnit + 1, 1};
  EXPECT_TRUE(arena_->check_fits(fits).ok());
  EXPECT_EQ(arena_->check_fits(too_many).code(), StatusCode::kPayloadTooLarge) << "blocks are whole units";
  const std::uint64_t absurd[] = {~std::uint64_t{0}, ~std::uint64_t{0}};
  EXPECT_FALSE(arena_->check_fits(absurd).ok());
}

TEST_F(ArenaTest, RemovedWhileItIsWrittenItNeverBecomesReadable) {
  auto slot = reserve("k", kUnit);
  ASSERT_TRUE(slot.ok());
  EXPECT_EQ(arena_->remove("k"), RemoveOutcome::kStillRead);
  EXPECT_EQ(slot->seal().status().code(), StatusCode::kAborted);
  EXPECT_EQ(used(), 0u);
  auto dropped = reserve("l", kUnit);
  EXPECT_EQ(arena_->remove("l"), RemoveOutcome::kStillRead);
  dropped = internal_error("dropped");
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(arena_->remove("l"), RemoveOutcome::kAbsent);
}

TEST_F(ArenaTest, MemoryIsFreeOnlyWhenViewLeaseAndReaderHaveAllLetGo) {
  ASSERT_TRUE(arena_->put_from("k", pattern(kUnit)).ok());
  auto view = arena_->view("k");
  const auto lease = arena_->lease("k", 0, kAnyIncarnation);
  ASSERT_TRUE(view.ok() && lease.ok());
  EXPECT_EQ(arena_->remove("k"), RemoveOutcome::kStillRead);
  EXPECT_FALSE(view->still_valid());
  EXPECT_EQ(arena_->stats().lingering_bytes, kUnit);
  view->release();
  EXPECT_EQ(used(), kUnit) << "the lease holds it";
  arena_->unlease(lease->first);
  arena_->unlease(lease->first);  // again: ignored
  EXPECT_EQ(used(), 0u);
}

TEST_F(ArenaTest, ALeaseHoldsForItsTimeByTheInjectedClock) {
  ASSERT_TRUE(arena_->put_from("k", pattern(kUnit)).ok());
  ASSERT_TRUE(arena_->lease("k", 1000, kAnyIncarnation).ok());
  EXPECT_EQ(arena_->remove("k"), RemoveOutcome::kStillRead);
  clock_.advance_us(999);
  EXPECT_EQ(arena_->remove("k"), RemoveOutcome::kStillRead);
  clock_.advance_us(1);
  EXPECT_EQ(arena_->stats().used_bytes, 0u);
  EXPECT_EQ(arena_->remove("k"), RemoveOutcome::kAbsent);
}

// Fault 26: the order of those who wait is kept, a small object doesn't overtake a large one.
TEST_F(ArenaTest, Fault26WaitingReservationsAreServedInTheirOrder) {
  ASSERT_TRUE(arena_->put_from("a", pattern(5 * kUnit)).ok());
  ASSERT_TRUE(arena_->put_from("b", pattern(4 * kUnit)).ok());
  Arena::Turn large(*arena_), small(*arena_);
  EXPECT_EQ(arena_->try_reserve("large", 6 * kUnit, large).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(arena_->try_reserve("small", kUnit, small).status().code(), StatusCode::kResourceExhausted)
      << "there is room for it, but another one was first";
  arena_->remove("a");
  EXPECT_EQ(arena_->try_reserve("small", kUnit, small).status().code(), StatusCode::kResourceExhausted);
  auto first = arena_->try_reserve("large", 6 * kUnit, large);
  EXPECT_FALSE(first.ok()) << "6 units in one piece are not free yet";
  arena_->remove("b");
  first = arena_->try_reserve("large", 6 * kUnit, large);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(arena_->try_reserve("small", kUnit, small).ok());
  EXPECT_EQ(arena_->stats().waits, 2u);
}

TEST_F(ArenaTest, ATurnThatIsGivenUpLetsTheNextOnePass) {
  ASSERT_TRUE(arena_->put_from("a", pattern(8 * kUnit)).ok());
  Arena::Turn small(*arena_);
  {
    Arena::Turn large(*arena_);
    EXPECT_FALSE(arena_->try_reserve("large", 6 * kUnit, large).ok());
    EXPECT_FALSE(arena_->try_reserve("small", kUnit, small).ok());
  }
  EXPECT_TRUE(arena_->try_reserve("small", kUnit, small).ok());
}

TEST_F(ArenaTest, ManyWritersInATightArenaAllGetTheirTurnInTheEnd) {
  std::vector<std::thread> writers;
  SystemClock clock;
  auto arena = make_arena(clock, 8 * kUnit, 4);  // and fewer entries than writers
  for (int writer = 0; writer < 6; ++writer) {
    writers.emplace_back([&, writer] {
      for (int turn = 0; turn < 50; ++turn) {
        const std::string key = std::to_string(writer);
        ASSERT_TRUE(arena->put_from(key, pattern(3 * kUnit), {.wait_us = 20'000'000}).ok());
        ASSERT_EQ(arena->remove(key), RemoveOutcome::kFreed);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(arena->stats().used_bytes, 0u);
  EXPECT_EQ(arena->stats().wait_timeouts, 0u);
  arena->check_invariants();
}

TEST_F(ArenaTest, TheNumberOfObjectsIsALimitLikeTheBytes) {
  auto arena = make_arena(clock_, 100 * kUnit, 2);
  ASSERT_TRUE(arena->put_from("a", pattern(1)).ok());
  ASSERT_TRUE(arena->put_from("b", pattern(1)).ok());
  const Status status = arena->put_from("c", pattern(1));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("2"), std::string::npos);
  arena->remove("a");
  EXPECT_TRUE(arena->put_from("c", pattern(1)).ok());
  arena->check_invariants();
}

TEST_F(ArenaTest, SizesOutOfRangeAreRefused) {
  for (const ArenaOptions& options :
       {ArenaOptions{.bytes = 0}, ArenaOptions{.bytes = 511}, ArenaOptions{.bytes = ~std::uint64_t{0}},
        ArenaOptions{.max_objects = 0}, ArenaOptions{.max_objects = kMaxIndexEntries + 1}}) {
    EXPECT_EQ(Arena::create(options, clock_).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(ArenaTest, TwoArenasNeverHaveOneIncarnation) {
  EXPECT_NE(make_arena(clock_, kUnit)->incarnation(), make_arena(clock_, kUnit)->incarnation());
}

// Any history of reservations, seals, removals, views and leases keeps the books right and every readable byte as put.
TEST(ArenaProperty, AnyHistoryKeepsTheBooksAndTheBytes) {
  EXPECT_TRUE(rc::check([] {
    ManualClock clock;
    auto arena = make_arena(clock, 32 * kUnit, 8);
    std::vector<Slot> slots;
    std::vector<std::pair<ObjectView, std::uint64_t>> views;
    for (int step = 0; step < 120; ++step) {
      const std::string key(1, *rc::gen::inRange('a', 'j'));
      switch (*rc::gen::inRange(0, 7)) {
        case 0: {
          auto slot = arena->reserve(key, *rc::gen::inRange<std::uint64_t>(0, 9 * kUnit), 0);
          if (slot.ok()) slots.push_back(*std::move(slot));
          break;
        }
        case 1:
          if (!slots.empty()) {
            const auto value = pattern(slots.back().bytes().size(), static_cast<unsigned>(step));
            std::copy(value.begin(), value.end(), slots.back().bytes().begin());
            (void)slots.back().seal();
            slots.pop_back();
          }
          break;
        case 2:
          if (!slots.empty()) slots.erase(slots.begin());
          break;
        case 3: arena->remove(key); break;
        case 4:
          if (auto view = arena->view(key); view.ok()) {
            const std::uint64_t checksum = hash64(view->bytes());
            RC_ASSERT(checksum == view->info().checksum);
            views.emplace_back(*std::move(view), checksum);
          }
          break;
        case 5:
          if (!views.empty()) {
            RC_ASSERT(hash64(views.front().first.bytes()) == views.front().second);
            views.erase(views.begin());
          }
          break;
        case 6:
          (void)arena->lease(key, 10, kAnyIncarnation);
          clock.advance_us(3);
          break;
      }
      arena->check_invariants();
    }
    slots.clear();
    views.clear();
    clock.advance_us(100);
    for (char key = 'a'; key < 'j'; ++key) arena->remove(std::string(1, key));
    RC_ASSERT(arena->stats().used_bytes == 0u);
  }));
}

}  // namespace
}  // namespace levada::store
