// What: Arena, the memory of all objects and the only place where they come to be and end.
// Owner: the capture server's process; slots, views, leases and servers must end before it.
// Thread: any; one mutex over bookkeeping, never held while bytes are copied or hashed.
// Invariant: nothing is evicted. Memory is free only when the object is removed AND no slot, view, lease or reader's
// slot holds it. Used + free == capacity; waiting reservations are served in the order they came.
//
//   reserve() ─> writing ──Slot::seal()──> readable ──remove()──> removed ──last holder lets go──> gone
//                   ├──remove()──────────────────────────────────────┘ ▲ (seal() then fails)          ▲
//                   └──Slot dropped───────────────────────────────────────────────────────────────────┘
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/memory_file.h"
#include "device/device.h"
#include "store/arena_object.h"
#include "store/free_list.h"
#include "store/object_store.h"
#include "store/reader_slots.h"
#include "store/shared_index.h"

namespace levada::store {

struct ArenaOptions {
  std::uint64_t bytes = 1ull << 30;
  std::uint32_t max_objects = 65536;
  bool prefault = true;  // first touch costs more than the copy: pay at start; on a device the index alone
  // Where the objects' bytes lie: null is shared host memory. The device must outlive the arena.
  device::Device* device = nullptr;
  device::FabricUse fabric = device::FabricUse::kIfPermitted;
};

struct ArenaStats {
  std::uint64_t capacity_bytes = 0, used_bytes = 0, free_bytes = 0, largest_free_bytes = 0, peak_used_bytes = 0;
  std::uint64_t objects = 0;    // readable
  std::uint64_t writing = 0;    // reserved, not sealed
  std::uint64_t lingering = 0;  // removed, still held
  std::uint64_t lingering_bytes = 0;
  std::uint64_t views = 0, leases = 0, readers = 0;
  std::uint64_t allocs = 0, frees = 0, sealed_bytes = 0;
  std::uint64_t free_unknown = 0;  // removals of what was not there
  std::uint64_t clashes = 0;       // reservations of a live key
  std::uint64_t waits = 0, wait_us = 0, wait_timeouts = 0, leases_expired = 0;
  std::uint64_t publish_us = 0, copy_errors = 0;  // told by those who write
};

class Arena;

// Reserved memory for one object. Dropped unsealed, it frees its memory and nobody ever saw the object.
class Slot {
 public:
  Slot(Slot&& other) noexcept;
  Slot& operator=(Slot&& other) noexcept;
  ~Slot();
  // Memory of the arena's device, if it is on one.
  std::span<std::byte> bytes() const { return bytes_; }
  // Readable at once, for everybody. Without a checksum it is computed here. kAborted if the key was removed meanwhile.
  // REQUIRES: not sealed before; nobody writes to bytes() any more; a checksum is given if the arena is on a device.
  Result<ObjectInfo> seal(std::optional<std::uint64_t> checksum = std::nullopt);

 private:
  friend class Arena;
  Slot(Arena* arena, ArenaObject* object, std::span<std::byte> bytes) : arena_(arena), object_(object), bytes_(bytes) {}
  Arena* arena_ = nullptr;
  ArenaObject* object_ = nullptr;
  std::span<std::byte> bytes_;
};

class Arena {
 public:
  using LeaseId = std::uint64_t;
  using ReaderId = std::uint64_t;

  // kInvalidArgument for sizes out of range, kResourceExhausted if the system doesn't give the memory.
  static Result<std::unique_ptr<Arena>> create(const ArenaOptions& options, const Clock& clock);
  ~Arena();

  std::uint64_t incarnation() const { return incarnation_; }
  std::uint64_t capacity_bytes() const { return layout_.data_bytes; }
  const Clock& clock() const { return clock_; }
  // Null unless the bytes lie in memory of a device; then slots and views show that memory.
  device::Device* device() const { return device_; }
  // REQUIRES: device() != nullptr.
  const device::SharedBuffer& device_memory() const { return *device_memory_; }
  // Between host memory and an object's, wherever the arena lies; has happened on return. REQUIRES: equal lengths.
  Status write(const Slot& slot, std::span<const std::byte> from);
  Status read(const ObjectView& view, std::span<std::byte> to);
  // kPayloadTooLarge naming both sizes if objects of these sizes don't fit an empty arena together.
  Status check_fits(std::span<const std::uint64_t> object_bytes) const;

  // Waits for space until the clock shows `deadline_us`, behind those who came earlier. kAlreadyExists if the key is
  // live or still read, kPayloadTooLarge at once if it could never fit, kResourceExhausted naming the sizes otherwise.
  Result<Slot> reserve(std::string_view key, std::uint64_t bytes, std::int64_t deadline_us);

  // A place in the queue of those who wait for space, for callers that can't block; leaves the queue when it dies.
  class Turn {
   public:
    explicit Turn(Arena& arena) : arena_(arena) {}
    Turn(const Turn&) = delete;
    ~Turn() {
      if (number_ != 0) arena_.leave(*this);
    }
    // For the counters: nothing came in time.
    void on_timeout() { arena_.count_timeout(); }

   private:
    friend class Arena;
    Arena& arena_;
    std::uint64_t number_ = 0;  // 0: not queued
    std::int64_t since_us_ = 0;
  };
  // As reserve() without waiting: kResourceExhausted means "not yet, ask again", any other failure is final.
  Result<Slot> try_reserve(std::string_view key, std::uint64_t bytes, Turn& turn);

  // Reserves, copies with stores that bypass the caches, seals.
  Status put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options = {});

  std::optional<ObjectInfo> find(std::string_view key) const;
  Result<ObjectView> view(std::string_view key, std::uint64_t incarnation = kAnyIncarnation);

  RemoveOutcome remove(std::string_view key);
  // REQUIRES: the prefix is not empty.
  RemovedCount remove_prefix(std::string_view prefix);

  // `ttl_us` 0: until unlease().
  Result<std::pair<LeaseId, ObjectInfo>> lease(std::string_view key, std::int64_t ttl_us, std::uint64_t incarnation);
  // An unknown id (expired, given back earlier) is ignored.
  void unlease(LeaseId id);
  bool is_leased(LeaseId id) const;
  // As view(key); removed objects too, as long as the lease stands. kNotFound once it has ended.
  Result<ObjectView> view_of(LeaseId id);

  // A process that reads through a mapping of memory(); its slots hold objects until drop_reader().
  struct Reader {
    ReaderId id;
    int slots_descriptor;  // of a ReaderSlots, owned by the arena
  };
  Result<Reader> add_reader();
  void drop_reader(ReaderId id);

  // Called, with the arena locked, whenever waiting reservations may have become possible. Must not call back.
  void on_space(std::function<void()> listener);

  // For the counters: a batch took this long from its copies to its names, or its device failed.
  void count_publication(std::int64_t us);
  void count_copy_error();

  const MemoryFile& memory() const { return memory_; }
  // The memory of all objects.
  std::span<std::byte> data() { return data_; }
  // Frees first what nobody holds any more.
  ArenaStats stats();
  // Aborts if the bookkeeping contradicts itself.
  void check_invariants() const;

 private:
  friend class Slot;
  class ViewHold;
  struct LeaseRecord {
    ArenaObject* object;
    std::int64_t expires_us;
  };
  struct ReaderRecord {
    MemoryFile memory;
    const ReaderSlots& slots() const { return *reinterpret_cast<const ReaderSlots*>(memory.bytes().data()); }
  };

  Arena(MemoryFile memory, const IndexLayout& layout, std::uint64_t incarnation, const Clock& clock);
  Status place_on(device::Device& device, device::FabricUse fabric);
  Status copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes);
  std::span<std::byte> bytes_of(const ArenaObject& object) const { return data_.subspan(object.offset, object.bytes); }
  void leave(Turn& turn);
  void count_timeout();
  void leave_locked(Turn& turn);
  Status check_reservation_locked(std::string_view key, std::uint64_t bytes);
  Result<Slot> try_reserve_locked(std::string_view key, std::uint64_t bytes, Turn& turn);
  Result<ArenaObject*> readable_locked(std::string_view key, std::uint64_t incarnation);
  ObjectView view_locked(ArenaObject& object);
  Result<ObjectInfo> seal(ArenaObject& object, std::uint64_t checksum);
  void drop_slot(ArenaObject& object);
  void unpin(ArenaObject& object);
  RemoveOutcome remove_locked(ArenaObject& object);
  bool held_locked(const ArenaObject& object) const;
  bool free_if_unheld_locked(ArenaObject& object);
  void expire_leases_locked();
  void sweep_locked();
  void erase_locked(ArenaObject& object);
  void notify_space_locked();

  const Clock& clock_;
  MemoryFile memory_;
  const IndexLayout layout_;
  const std::uint64_t incarnation_;
  std::span<std::byte> data_;  // in memory_ or in device_memory_
  device::Device* device_ = nullptr;
  std::unique_ptr<device::SharedBuffer> device_memory_;
  std::mutex copy_mutex_;  // never together with the other one
  std::unique_ptr<device::Stream> copy_stream_;

  mutable std::mutex mutex_;
  std::condition_variable space_;
  IndexWriter index_;
  FreeList free_list_;
  std::map<std::string, ArenaObject, std::less<>> objects_;
  std::unordered_set<ArenaObject*> lingering_;
  std::list<std::uint64_t> queue_;  // turns that wait, in order
  std::map<LeaseId, LeaseRecord> leases_;
  std::map<ReaderId, ReaderRecord> readers_;
  std::vector<std::function<void()>> space_listeners_;
  std::uint64_t next_turn_ = 1, next_reader_ = 1;
  LeaseId next_lease_;   // begins at random: a client of an earlier arena must not meet its old numbers
  ArenaStats counters_;  // every field that no other member knows
};

}  // namespace levada::store
