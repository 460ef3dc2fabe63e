#include "store/arena.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "store/stream_copy.h"

namespace levada::store {
namespace {

// Slots of reading processes are cleared without telling anybody: who waits for memory looks again this often.
constexpr std::int64_t kLookAgainUs = 2'000;

std::uint64_t random_incarnation() {
  std::uint64_t value = kAnyIncarnation;
  while (value == kAnyIncarnation) value = random_word();
  return value;
}

std::string sizes(std::uint64_t wanted, const FreeList& list) {
  return std::to_string(wanted) + " bytes wanted; " + std::to_string(list.free_bytes()) + " of " +
         std::to_string(list.capacity_bytes()) + " are free, the longest piece has " +
         std::to_string(list.largest_free_bytes());
}

}  // namespace

Slot::Slot(Slot&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)), object_(other.object_), bytes_(std::exchange(other.bytes_, {})) {}

Slot& Slot::operator=(Slot&& other) noexcept {
  if (this != &other) {
    if (arena_ != nullptr) arena_->drop_slot(*object_);
    arena_ = std::exchange(other.arena_, nullptr);
    object_ = other.object_;
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

Slot::~Slot() {
  if (arena_ != nullptr) arena_->drop_slot(*object_);
}

Result<ObjectInfo> Slot::seal(std::optional<std::uint64_t> checksum) {
  LEVADA_CHECK(arena_ != nullptr, "a slot is sealed once");
  LEVADA_CHECK(checksum || arena_->device() == nullptr, "the processor doesn't hash a device's memory");
  if (!checksum) checksum = hash64(bytes_);
  return std::exchange(arena_, nullptr)->seal(*object_, *checksum);
}

Result<std::unique_ptr<Arena>> Arena::create(const ArenaOptions& options, const Clock& clock) {
  if (options.bytes < FreeList::kUnitBytes || options.bytes > kMaxArenaBytes) {
    return invalid_argument("an arena has " + std::to_string(FreeList::kUnitBytes) + " to " +
                                std::to_string(kMaxArenaBytes) + " bytes, got " + std::to_string(options.bytes),
                            "bytes");
  }
  if (options.max_objects == 0 || options.max_objects > kMaxIndexEntries) {
    return invalid_argument("an arena has room for 1 to " + std::to_string(kMaxIndexEntries) + " objects, got " +
                                std::to_string(options.max_objects),
                            "max_objects");
  }
  const std::uint64_t incarnation = random_incarnation();
  const auto data = options.device == nullptr ? IndexLayout::Data::kHere : IndexLayout::Data::kElsewhere;
  const IndexLayout layout = IndexLayout::of(options.max_objects, FreeList::block_bytes(options.bytes), data);
  LEVADA_ASSIGN_OR_RETURN(MemoryFile memory, MemoryFile::create("levada-arena", layout.total_bytes));
  // On a device only the index is here.
  if (options.prefault)
    LEVADA_RETURN_IF_ERROR(options.device == nullptr ? memory.prefault(layout.data_offset, layout.data_bytes)
                                                     : memory.prefault(0, layout.total_bytes));
  std::unique_ptr<Arena> arena(new Arena(std::move(memory), layout, incarnation, clock));
  if (options.device != nullptr) LEVADA_RETURN_IF_ERROR(arena->place_on(*options.device, options.fabric));
  return arena;
}

Arena::Arena(MemoryFile memory, const IndexLayout& layout, std::uint64_t incarnation, const Clock& clock)
    : clock_(clock),
      memory_(std::move(memory)),
      layout_(layout),
      incarnation_(incarnation),
      index_(memory_.bytes(), layout, incarnation),
      free_list_(layout.data_bytes),
      next_lease_(incarnation) {
  if (layout.data_offset != 0) data_ = memory_.bytes().subspan(layout.data_offset, layout.data_bytes);
}

Status Arena::place_on(device::Device& device, device::FabricUse fabric) {
  LEVADA_ASSIGN_OR_RETURN(device_memory_, device.allocate_shared(layout_.data_bytes, fabric));
  LEVADA_ASSIGN_OR_RETURN(copy_stream_, device.make_stream());
  data_ = {static_cast<std::byte*>(device_memory_->data()), layout_.data_bytes};
  device_ = &device;
  return {};
}

Status Arena::copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::lock_guard lock(copy_mutex_);
  LEVADA_RETURN_IF_ERROR(copy_stream_->copy(to, from, bytes));
  return copy_stream_->synchronize();
}

Status Arena::write(const Slot& slot, std::span<const std::byte> from) {
  LEVADA_CHECK(slot.bytes().size() == from.size(), "a slot is written whole");
  if (device_ != nullptr) return copy_on_device(slot.bytes().data(), from.data(), from.size());
  stream_copy(slot.bytes(), from);
  return {};
}

Status Arena::read(const ObjectView& view, std::span<std::byte> to) {
  LEVADA_CHECK(view.bytes().size() == to.size(), "an object is read whole");
  if (device_ != nullptr) return copy_on_device(to.data(), view.bytes().data(), to.size());
  stream_copy(to, view.bytes());
  return {};
}

Arena::~Arena() {
  index_.close();
  for (const auto& [key, object] : objects_)
    LEVADA_CHECK(!object.slot_open && object.views == 0, "an arena ends before its slots and views");
}

Status Arena::check_fits(std::span<const std::uint64_t> object_bytes) const {
  std::uint64_t total = 0;
  for (std::uint64_t bytes : object_bytes) {
    if (bytes > capacity_bytes() || total > capacity_bytes()) {
      total = std::max(bytes, total);
      break;
    }
    total += FreeList::block_bytes(bytes);
  }
  if (total <= capacity_bytes()) return {};
  return payload_too_large(std::to_string(total) + " bytes can't fit an arena of " + std::to_string(capacity_bytes()),
                           "bytes");
}

Status Arena::check_reservation_locked(std::string_view key, std::uint64_t bytes) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_RETURN_IF_ERROR(check_fits(std::span(&bytes, 1)));
  if (objects_.find(key) == objects_.end()) return {};
  sweep_locked();  // its last reader may have gone without a word
  const auto there = objects_.find(key);
  if (there == objects_.end()) return {};
  ++counters_.clashes;
  const bool removed = there->second.state == ArenaObject::State::kRemoved;
  return {StatusCode::kAlreadyExists,
          "object '" + std::string(key) + (removed ? "' is removed but still read" : "' exists"), "key"};
}

Result<Slot> Arena::try_reserve_locked(std::string_view key, std::uint64_t bytes, Turn& turn) {
  if (Status bad = check_reservation_locked(key, bytes); !bad.ok()) {
    leave_locked(turn);
    return bad;
  }
  const bool first = queue_.empty() || queue_.front() == turn.number_;
  std::optional<std::uint64_t> offset;
  std::optional<std::uint32_t> entry;
  for (int round = 0; first && round < 2 && !entry; ++round) {
    if (round == 1) sweep_locked();
    offset = free_list_.try_allocate(bytes);
    if (offset && !(entry = index_.try_take())) free_list_.release(*offset, bytes);
  }
  if (!entry) {
    if (turn.number_ == 0) {
      turn.number_ = next_turn_++;
      turn.since_us_ = clock_.now_us();
      queue_.push_back(turn.number_);
      ++counters_.waits;
    }
    if (offset)
      return resource_exhausted("the arena holds as many objects as it can: " + std::to_string(layout_.entries));
    return resource_exhausted("no space in the arena for '" + std::string(key) + "': " + sizes(bytes, free_list_));
  }
  leave_locked(turn);
  ArenaObject& object = objects_[std::string(key)];
  object.key = key;
  object.offset = *offset;
  object.bytes = bytes;
  object.entry = *entry;
  ++counters_.allocs;
  ++counters_.writing;
  counters_.peak_used_bytes =
      std::max(counters_.peak_used_bytes, free_list_.capacity_bytes() - free_list_.free_bytes());
  return Slot(this, &object, bytes_of(object));
}

Result<Slot> Arena::try_reserve(std::string_view key, std::uint64_t bytes, Turn& turn) {
  std::lock_guard lock(mutex_);
  return try_reserve_locked(key, bytes, turn);
}

Result<Slot> Arena::reserve(std::string_view key, std::uint64_t bytes, std::int64_t deadline_us) {
  Turn turn(*this);
  std::unique_lock lock(mutex_);
  while (true) {
    Result<Slot> slot = try_reserve_locked(key, bytes, turn);
    if (slot.ok() || slot.status().code() != StatusCode::kResourceExhausted) return slot;
    const std::int64_t left_us = deadline_us - clock_.now_us();
    if (left_us <= 0) {
      ++counters_.wait_timeouts;
      return slot;
    }
    space_.wait_for(lock, std::chrono::microseconds(std::min(left_us, kLookAgainUs)));
  }
}

void Arena::leave(Turn& turn) {
  std::lock_guard lock(mutex_);
  leave_locked(turn);
}

void Arena::count_timeout() {
  std::lock_guard lock(mutex_);
  ++counters_.wait_timeouts;
}

void Arena::count_publication(std::int64_t us) {
  std::lock_guard lock(mutex_);
  counters_.publish_us += static_cast<std::uint64_t>(us);
}

void Arena::count_copy_error() {
  std::lock_guard lock(mutex_);
  ++counters_.copy_errors;
}

void Arena::leave_locked(Turn& turn) {
  if (turn.number_ == 0) return;
  counters_.wait_us += static_cast<std::uint64_t>(clock_.now_us() - turn.since_us_);
  queue_.remove(std::exchange(turn.number_, 0));
  notify_space_locked();  // the next in the queue may fit
}

Result<ObjectInfo> Arena::seal(ArenaObject& object, std::uint64_t checksum) {
  std::lock_guard lock(mutex_);
  object.slot_open = false;
  if (object.state == ArenaObject::State::kRemoved) {
    const std::string key = object.key;
    free_if_unheld_locked(object);
    return Status(StatusCode::kAborted, "object '" + key + "' was removed while it was written", "key");
  }
  object.state = ArenaObject::State::kReadable;
  --counters_.writing;
  ++counters_.objects;
  object.info = {object.bytes, checksum};
  object.guard = index_.publish(object.entry, object.key, {object.offset, object.bytes, checksum});
  counters_.sealed_bytes += object.bytes;
  return object.info;
}

void Arena::drop_slot(ArenaObject& object) {
  std::lock_guard lock(mutex_);
  object.slot_open = false;
  if (object.state == ArenaObject::State::kRemoved) {
    free_if_unheld_locked(object);
  } else {
    --counters_.writing;
    erase_locked(object);
  }
}

Status Arena::put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) {
  LEVADA_ASSIGN_OR_RETURN(Slot slot, reserve(key, bytes.size(), clock_.now_us() + options.wait_us));
  std::uint64_t checksum = options.checksum.value_or(0);
  if (options.checksum || device_ != nullptr) {
    LEVADA_RETURN_IF_ERROR(write(slot, bytes));
    if (!options.checksum) checksum = hash64(bytes);
  } else {
    checksum = stream_copy_hashed(slot.bytes(), bytes);
  }
  return slot.seal(checksum).status();
}

void Arena::on_space(std::function<void()> listener) {
  std::lock_guard lock(mutex_);
  space_listeners_.push_back(std::move(listener));
}

void Arena::notify_space_locked() {
  if (queue_.empty()) return;
  space_.notify_all();
  for (const auto& listener : space_listeners_) listener();
}

}  // namespace levada::store
