// Golden memory: tests/vectors/make_store.py, which wrote it from the format's page with struct and PyPI's xxhash.
#include "store/shared_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/memory_file.h"

namespace levada::store {
namespace {

// Memory as the arena has it: zeros, aligned to a page.
class IndexTest : public ::testing::Test {
 protected:
  std::optional<IndexReader::Found> find(std::string_view key) const {
    const auto reader = IndexReader::open(memory_.bytes());
    IndexReader::Found found;
    return reader->find(key, found) == IndexReader::Answer::kFound ? std::optional(found) : std::nullopt;
  }

  const IndexLayout layout_ = IndexLayout::of(8, 4096);
  MemoryFile memory_ = *MemoryFile::create("index-test", layout_.total_bytes);
  IndexWriter writer_{memory_.bytes(), layout_, 77};
};

TEST_F(IndexTest, AnObjectIsFoundFromPublishToRetract) {
  EXPECT_FALSE(find("a").has_value());
  const std::uint32_t entry = *writer_.try_take();
  const std::uint64_t guard = writer_.publish(entry, "a", {512, 100, 7});
  const auto found = find("a");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->guard, guard);
  EXPECT_EQ(found->offset, 512u);
  EXPECT_EQ(found->bytes, 100u);
  EXPECT_EQ(found->checksum, 7u);
  const auto reader = IndexReader::open(memory_.bytes());
  EXPECT_TRUE(reader->still(*found));
  EXPECT_EQ(reader->incarnation(), 77u);
  writer_.retract(entry);
  EXPECT_FALSE(find("a").has_value());
  EXPECT_FALSE(reader->still(*found));
}

TEST_F(IndexTest, AnEntryUsedAnewIsAnotherObject) {
  const std::uint32_t entry = *writer_.try_take();
  writer_.publish(entry, "a", {0, 100, 7});
  const auto before = find("a");
  writer_.retract(entry);
  writer_.give_back(entry);
  ASSERT_EQ(writer_.try_take(), entry);
  writer_.publish(entry, "a", {0, 100, 7});
  EXPECT_FALSE(IndexReader::open(memory_.bytes())->still(*before)) << "same key, same place, another life";
}

TEST_F(IndexTest, FullAndEmptiedAgainInAnyOrderEveryKeyIsStillFound) {
  std::vector<std::uint32_t> entries;
  const auto key = [](std::uint32_t i) { return std::string(1 + i * 100, static_cast<char>('a' + i)); };
  for (std::uint32_t i = 0; i < 8; ++i) {
    entries.push_back(*writer_.try_take());
    writer_.publish(entries.back(), key(i), {i, i, i});
  }
  EXPECT_EQ(writer_.try_take(), std::nullopt);
  for (std::uint32_t gone : {3u, 0u, 7u, 5u}) {
    writer_.retract(entries[gone]);
    writer_.give_back(entries[gone]);
    EXPECT_FALSE(find(key(gone)).has_value());
    for (std::uint32_t stays : {1u, 2u, 4u, 6u}) EXPECT_EQ(find(key(stays))->bytes, stays);
  }
}

TEST(IndexGolden, MemoryWrittenByTheFormatsPageIsRead) {
  std::ifstream file(LEVADA_SOURCE_DIR "/tests/vectors/store/index.bin", std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  MemoryFile memory = *MemoryFile::create("golden", image.size());
  std::memcpy(memory.bytes().data(), image.data(), image.size());
  const auto reader = IndexReader::open(memory.bytes());
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->incarnation(), 0x1122334455667788u);
  for (int i = 0; i < 5; ++i) {
    IndexReader::Found found;
    ASSERT_EQ(reader->find("s/run:a/g1/" + std::to_string(i), found), IndexReader::Answer::kFound) << i;
    ASSERT_EQ(found.bytes, 100u + i);
    EXPECT_EQ(static_cast<char>(reader->data()[found.offset + found.bytes - 1]), 'A' + i);
  }
  IndexReader::Found found;
  EXPECT_EQ(reader->find("s/run:a/g1/5", found), IndexReader::Answer::kAbsent);

  // And our writer gives the very same bytes, keys and all.
  MemoryFile ours = *MemoryFile::create("ours", image.size());
  IndexWriter writer(ours.bytes(), IndexLayout::of(8, 4096), 0x1122334455667788);
  for (int i = 0; i < 5; ++i) {
    const std::string key = "s/run:a/g1/" + std::to_string(i);
    ASSERT_EQ(reader->find(key, found), IndexReader::Answer::kFound);
    writer.publish(*writer.try_take(), key, {found.offset, found.bytes, found.checksum});
  }
  const IndexLayout layout = IndexLayout::of(8, 4096);
  EXPECT_EQ(std::memcmp(ours.bytes().data(), image.data(), layout.data_offset), 0);
}

TEST_F(IndexTest, DamagedMemoryIsRefusedOrAnsweredNeverFollowed) {
  const std::vector<std::byte> whole(memory_.bytes().begin(), memory_.bytes().end());
  EXPECT_FALSE(IndexReader::open(std::span(whole).first(100)).ok());
  for (std::size_t byte = 0; byte < 56; ++byte) {
    if (byte >= 16 && byte < 24) continue;  // the incarnation may be anything
    std::memcpy(memory_.bytes().data(), whole.data(), whole.size());
    memory_.bytes()[byte] ^= std::byte{0x41};
    EXPECT_EQ(IndexReader::open(memory_.bytes()).status().code(), StatusCode::kDataLoss) << "byte " << byte;
  }
  // A chain that leads nowhere, and one that never ends.
  std::memcpy(memory_.bytes().data(), whole.data(), whole.size());
  const auto reader = IndexReader::open(memory_.bytes());
  auto* buckets = reinterpret_cast<std::uint32_t*>(memory_.bytes().data() + layout_.buckets_offset);
  IndexReader::Found found;
  for (std::uint32_t link : {9u, ~0u}) {
    std::fill(buckets, buckets + layout_.buckets, link);
    EXPECT_EQ(reader->find("a", found), IndexReader::Answer::kUnsure);
  }
  std::fill(buckets, buckets + layout_.buckets, 1);
  auto* entries = reinterpret_cast<IndexEntry*>(memory_.bytes().data() + layout_.entries_offset);
  entries[0].next = 1;
  EXPECT_EQ(reader->find("a", found), IndexReader::Answer::kUnsure);
  // An object that would lie outside the data.
  std::fill(buckets, buckets + layout_.buckets, 0);
  writer_.publish(*writer_.try_take(), "a", {4000, 97, 0});
  EXPECT_NE(reader->find("a", found), IndexReader::Answer::kFound);
}

// Readers among a writer that never rests: whatever is found is what was published under that key.
TEST_F(IndexTest, ReadersNeverSeeAMixtureOfTwoObjects) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  std::atomic<std::uint64_t> hits{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      const auto reader = IndexReader::open(memory_.bytes());
      for (std::uint64_t turn = 0; !stop.load(); ++turn) {
        const std::uint64_t wanted = turn % 16;
        IndexReader::Found found;
        if (reader->find("key" + std::to_string(wanted), found) != IndexReader::Answer::kFound) continue;
        hits.fetch_add(1);
        ASSERT_EQ(found.bytes, wanted);
        ASSERT_EQ(found.checksum % 16, wanted);
        ASSERT_EQ(found.offset, found.checksum % 1000);
      }
    });
  }
  std::vector<std::uint32_t> live;
  for (std::uint64_t turn = 0; turn < 30'000 || (hits.load() < 100 && turn < 10'000'000); ++turn) {
    if (turn % 32 == 0) std::this_thread::yield();  // few cores, instrumented: the readers need their share
    if (live.size() == 8) {
      writer_.retract(live.front());
      writer_.give_back(live.front());
      live.erase(live.begin());
    }
    live.push_back(*writer_.try_take());
    writer_.publish(live.back(), "key" + std::to_string(turn % 16), {turn % 1000, turn % 16, turn});
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(hits.load(), 0u);
}

}  // namespace
}  // namespace levada::store
