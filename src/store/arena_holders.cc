// The other half of Arena: who holds an object, how it is removed, and when its memory is free.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "store/arena.h"

namespace levada::store {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxReaders = 1024;

}  // namespace

class Arena::ViewHold final : public ObjectView::Hold {
 public:
  ViewHold(Arena& arena, ArenaObject& object) : arena_(arena), object_(object) {}
  ~ViewHold() override { arena_.unpin(object_); }
  bool still_valid() const override {
    std::lock_guard lock(arena_.mutex_);
    return object_.state == ArenaObject::State::kReadable;
  }

 private:
  Arena& arena_;
  ArenaObject& object_;
};

std::optional<ObjectInfo> Arena::find(std::string_view key) const {
  std::lock_guard lock(mutex_);
  const auto there = objects_.find(key);
  if (there == objects_.end() || there->second.state != ArenaObject::State::kReadable) return std::nullopt;
  return there->second.info;
}

Result<ArenaObject*> Arena::readable_locked(std::string_view key, std::uint64_t incarnation) {
  if (incarnation != kAnyIncarnation && incarnation != incarnation_)
    return wrong_incarnation(incarnation, incarnation_);
  const auto there = objects_.find(key);
  if (there == objects_.end() || there->second.state != ArenaObject::State::kReadable)
    return not_found("no object '" + std::string(key) + "'", "key");
  return &there->second;
}

Result<ObjectView> Arena::view(std::string_view key, std::uint64_t incarnation) {
  std::lock_guard lock(mutex_);
  LEVADA_ASSIGN_OR_RETURN(ArenaObject* const object, readable_locked(key, incarnation));
  return view_locked(*object);
}

ObjectView Arena::view_locked(ArenaObject& object) {
  ++object.views;
  ++counters_.views;
  return ObjectView(bytes_of(object), object.info, std::make_unique<ViewHold>(*this, object));
}

void Arena::unpin(ArenaObject& object) {
  std::lock_guard lock(mutex_);
  --object.views;
  --counters_.views;
  free_if_unheld_locked(object);
}

RemoveOutcome Arena::remove(std::string_view key) {
  std::lock_guard lock(mutex_);
  expire_leases_locked();
  const auto there = objects_.find(key);
  if (there == objects_.end()) {
    ++counters_.free_unknown;
    return RemoveOutcome::kAbsent;
  }
  return remove_locked(there->second);
}

RemovedCount Arena::remove_prefix(std::string_view prefix) {
  LEVADA_CHECK(!prefix.empty(), "an empty prefix would remove everything");
  std::lock_guard lock(mutex_);
  expire_leases_locked();
  RemovedCount removed;
  for (auto at = objects_.lower_bound(prefix); at != objects_.end() && at->first.starts_with(prefix);) {
    ArenaObject& object = at->second;
    ++at;
    if (remove_locked(object) == RemoveOutcome::kFreed) {
      ++removed.freed;
    } else {
      ++removed.still_read;
    }
  }
  return removed;
}

RemoveOutcome Arena::remove_locked(ArenaObject& object) {
  if (object.state != ArenaObject::State::kRemoved) {
    if (object.state == ArenaObject::State::kReadable) index_.retract(object.entry);
    --(object.state == ArenaObject::State::kReadable ? counters_.objects : counters_.writing);
    object.state = ArenaObject::State::kRemoved;
    lingering_.insert(&object);
    counters_.lingering_bytes += FreeList::block_bytes(object.bytes);
  }
  return free_if_unheld_locked(object) ? RemoveOutcome::kFreed : RemoveOutcome::kStillRead;
}

bool Arena::held_locked(const ArenaObject& object) const {
  if (object.slot_open || object.views > 0 || object.leases > 0) return true;
  const std::uint64_t name = ReaderSlots::name(object.entry, object.guard);
  return object.guard != 0 && std::any_of(readers_.begin(), readers_.end(),
                                          [&](const auto& reader) { return reader.second.slots().holds(name); });
}

bool Arena::free_if_unheld_locked(ArenaObject& object) {
  if (object.state != ArenaObject::State::kRemoved || held_locked(object)) return false;
  lingering_.erase(&object);
  counters_.lingering_bytes -= FreeList::block_bytes(object.bytes);
  erase_locked(object);
  return true;
}

void Arena::erase_locked(ArenaObject& object) {
  index_.give_back(object.entry);
  free_list_.release(object.offset, object.bytes);
  ++counters_.frees;
  objects_.erase(objects_.find(object.key));
  notify_space_locked();
}

Result<std::pair<Arena::LeaseId, ObjectInfo>> Arena::lease(std::string_view key, std::int64_t ttl_us,
                                                           std::uint64_t incarnation) {
  if (ttl_us < 0) return invalid_argument("a lease's time can't be negative: " + std::to_string(ttl_us), "ttl_us");
  std::lock_guard lock(mutex_);
  LEVADA_ASSIGN_OR_RETURN(ArenaObject* const object, readable_locked(key, incarnation));
  const std::int64_t now_us = clock_.now_us();
  ++object->leases;
  leases_[next_lease_] = {object, ttl_us == 0 || ttl_us > kNever - now_us ? kNever : now_us + ttl_us};
  return std::pair(next_lease_++, object->info);
}

void Arena::unlease(LeaseId id) {
  std::lock_guard lock(mutex_);
  const auto there = leases_.find(id);
  if (there == leases_.end()) return;
  ArenaObject& object = *there->second.object;
  leases_.erase(there);
  --object.leases;
  free_if_unheld_locked(object);
}

bool Arena::is_leased(LeaseId id) const {
  std::lock_guard lock(mutex_);
  const auto there = leases_.find(id);
  return there != leases_.end() && there->second.expires_us > clock_.now_us();
}

Result<ObjectView> Arena::view_of(LeaseId id) {
  std::lock_guard lock(mutex_);
  const auto there = leases_.find(id);
  if (there == leases_.end() || there->second.expires_us <= clock_.now_us())
    return not_found("the lease has ended", "lease");
  return view_locked(*there->second.object);
}

Result<Arena::Reader> Arena::add_reader() {
  LEVADA_ASSIGN_OR_RETURN(MemoryFile memory, MemoryFile::create("levada-reader", sizeof(ReaderSlots)));
  std::lock_guard lock(mutex_);
  if (readers_.size() == kMaxReaders)
    return resource_exhausted("the arena has as many readers as it can: " + std::to_string(kMaxReaders));
  const int descriptor = memory.descriptor();
  const ReaderId id = next_reader_++;
  readers_.emplace(id, ReaderRecord{std::move(memory)});
  return Reader{id, descriptor};
}

void Arena::drop_reader(ReaderId id) {
  std::lock_guard lock(mutex_);
  readers_.erase(id);
  sweep_locked();
}

void Arena::expire_leases_locked() {
  if (leases_.empty()) return;
  const std::int64_t now_us = clock_.now_us();
  counters_.leases_expired += std::erase_if(leases_, [&](const auto& lease) {
    if (lease.second.expires_us > now_us) return false;
    --lease.second.object->leases;
    return true;
  });
}

void Arena::sweep_locked() {
  expire_leases_locked();
  for (auto at = lingering_.begin(); at != lingering_.end();) {
    ArenaObject& object = **at++;
    free_if_unheld_locked(object);
  }
}

ArenaStats Arena::stats() {
  std::lock_guard lock(mutex_);
  sweep_locked();
  ArenaStats stats = counters_;
  stats.capacity_bytes = free_list_.capacity_bytes();
  stats.free_bytes = free_list_.free_bytes();
  stats.used_bytes = stats.capacity_bytes - stats.free_bytes;
  stats.largest_free_bytes = free_list_.largest_free_bytes();
  stats.leases = leases_.size();
  stats.readers = readers_.size();
  stats.lingering = lingering_.size();
  return stats;
}

void Arena::check_invariants() const {
  std::lock_guard lock(mutex_);
  std::map<std::uint64_t, std::uint64_t> blocks = free_list_.free_blocks();
  std::uint64_t removed = 0, readable = 0, removed_bytes = 0;
  for (const auto& [key, object] : objects_) {
    LEVADA_CHECK(key == object.key, "an object is filed under another key");
    LEVADA_CHECK(blocks.emplace(object.offset, FreeList::block_bytes(object.bytes)).second, "two blocks at one offset");
    LEVADA_CHECK(object.slot_open || object.state != ArenaObject::State::kWriting, "written without a slot");
    readable += object.state == ArenaObject::State::kReadable;
    if (object.state != ArenaObject::State::kRemoved) continue;
    ++removed;
    removed_bytes += FreeList::block_bytes(object.bytes);
  }
  LEVADA_CHECK(removed == lingering_.size() && removed_bytes == counters_.lingering_bytes,
               "a removed object is not lingering");
  LEVADA_CHECK(readable == counters_.objects && objects_.size() - readable - removed == counters_.writing,
               "objects are miscounted");
  std::uint64_t end = 0;
  for (const auto& [offset, length] : blocks) {
    LEVADA_CHECK(offset == end, "blocks overlap or leave a hole");
    end = offset + length;
  }
  LEVADA_CHECK(end == free_list_.capacity_bytes(), "used + free != capacity");
}

}  // namespace levada::store
