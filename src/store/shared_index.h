// What: the arena's index of readable objects inside shared memory: IndexWriter in the owner, IndexReader in any process.
// Owner: the Arena owns the memory and the one writer; a reader borrows a mapping.
// Thread: the writer under the Arena's mutex; readers any number, any process, without locks or system calls.
// Invariant: an entry found under guard g describes exactly the object g until its guard changes, and the guard changes
// before anything else of the entry does. A reader trusts no number it reads: each is held against the mapping.
// Format: docs/formats/store.md, "Index".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace levada::store {

inline constexpr std::size_t kMaxKeyBytes = 960;
inline constexpr std::uint32_t kMaxIndexEntries = 1u << 20;
inline constexpr std::uint8_t kIndexVersion = 1;
inline constexpr std::uint64_t kMaxArenaBytes = 1ull << 46;

struct IndexHeader {
  char magic[7];  // "LVSTIDX"
  std::uint8_t version;
  std::uint32_t entries;
  std::uint32_t buckets;  // a power of two
  std::uint64_t incarnation;
  std::uint64_t buckets_offset, entries_offset;
  std::uint64_t data_offset, data_bytes;  // offset 0: the data lies elsewhere, on a device
  std::atomic<std::uint64_t> sequence;    // odd while a chain is being changed
  std::atomic<std::uint32_t> closed;      // 1 once the owner has gone in good order
};

// Guard: generation << 1 | readable. A generation is never used twice in one incarnation.
struct IndexEntry {
  std::atomic<std::uint64_t> guard;
  std::atomic<std::uint64_t> hash;  // XXH3-64 of the key
  std::atomic<std::uint64_t> offset, bytes, checksum;
  std::atomic<std::uint32_t> next;  // entry number + 1 of the chain's next; 0 ends it
  std::atomic<std::uint32_t> key_bytes;
  std::uint64_t reserved[2];
  std::atomic<std::uint64_t> key[kMaxKeyBytes / 8];  // padded with zeros
};
static_assert(sizeof(IndexEntry) == 1024 && std::atomic<std::uint64_t>::is_always_lock_free);

// Where the parts of an arena's memory lie.
struct IndexLayout {
  std::uint32_t entries, buckets;
  std::uint64_t buckets_offset, entries_offset, data_offset, data_bytes, total_bytes;
  // kElsewhere: the data is no part of this memory, and data_offset is 0.
  enum class Data : std::uint8_t { kHere, kElsewhere };
  static IndexLayout of(std::uint32_t entries, std::uint64_t data_bytes, Data data = Data::kHere);
};

class IndexWriter {
 public:
  // Writes the header. REQUIRES: `memory` has layout.total_bytes of zeros and outlives the writer.
  IndexWriter(std::span<std::byte> memory, const IndexLayout& layout, std::uint64_t incarnation);

  // An entry for one object, kept until give_back(); nullopt if all are taken.
  std::optional<std::uint32_t> try_take();
  void give_back(std::uint32_t entry) { free_.push_back(entry); }

  // Readers find the object from here on. Returns its guard. REQUIRES: `entry` is taken and not published.
  struct Object {
    std::uint64_t offset, bytes, checksum;
  };
  std::uint64_t publish(std::uint32_t entry, std::string_view key, const Object& object);
  // No reader finds it any more; a reader that has it sees its guard changed. REQUIRES: `entry` is published.
  void retract(std::uint32_t entry);
  void close();

 private:
  std::atomic<std::uint32_t>& bucket_of(std::uint64_t hash);
  IndexHeader& header_;
  std::span<std::atomic<std::uint32_t>> buckets_;
  std::span<IndexEntry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint32_t untouched_ = 0;  // entries from here on were never taken: their pages are not resident
  std::uint64_t next_generation_ = 1;
};

class IndexReader {
 public:
  struct Found {
    std::uint32_t entry;
    std::uint64_t guard;
    std::uint64_t offset;  // into data()
    std::uint64_t bytes, checksum;
  };
  enum class Answer { kFound, kAbsent, kUnsure };  // unsure: the index changed all the time; ask the owner

  // kDataLoss if the memory is not an index of this version or its numbers don't fit the memory.
  static Result<IndexReader> open(std::span<const std::byte> memory);

  Answer find(std::string_view key, Found& found) const;
  // Whether `found` is still readable and still the same object.
  bool still(const Found& found) const {
    return entries_[found.entry].guard.load(std::memory_order_seq_cst) == found.guard;
  }
  // Empty if the data lies elsewhere.
  std::span<const std::byte> data() const { return data_; }
  std::uint64_t data_bytes() const { return data_bytes_; }
  std::uint64_t incarnation() const { return incarnation_; }
  bool closed() const { return header_->closed.load(std::memory_order_acquire) != 0; }

 private:
  IndexReader() = default;
  bool matches(const IndexEntry& entry, std::string_view key, std::uint64_t hash, Found& found) const;
  const IndexHeader* header_ = nullptr;
  std::span<const std::atomic<std::uint32_t>> buckets_;
  std::span<const IndexEntry> entries_;
  std::span<const std::byte> data_;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t incarnation_ = 0;
};

}  // namespace levada::store
