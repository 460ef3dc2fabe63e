// What: ObjectStore, named immutable objects of raw bytes, as a client sees them whichever way the bytes travel.
// Owner: whoever opened it (open_store.h); views and leases must end before their store does.
// Thread: any; calls of one client share its connection and take turns.
// Invariant: a value is exactly the bytes that were put: no header, never changed, never evicted; it goes only by
// remove() or with its server. A read gives all bytes of one object or a Status, and never fewer or other ones.
// Keys carry their generation (core/sample_ref.h), so a key never names two values in one incarnation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace levada::store {

// One life of an arena: random, never 0. Objects die with it.
inline constexpr std::uint64_t kAnyIncarnation = 0;

struct ObjectInfo {
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // XXH3-64 of the value
  bool operator==(const ObjectInfo&) const = default;
};

enum class RemoveOutcome : std::uint8_t {
  kFreed,      // it was there, its memory is free
  kStillRead,  // refused to new readers at once; its memory counts as used until the last reader lets go (a server that
               // has just sent it may take a moment longer than the client it sent it to). Ask again.
  kAbsent,     // no such object: removed earlier or never there. Not an error.
};

struct RemovedCount {
  std::uint64_t freed = 0, still_read = 0;
  bool operator==(const RemovedCount&) const = default;
};

struct PutOptions {
  std::int64_t wait_us = 0;               // how long to wait for space
  std::optional<std::uint64_t> checksum;  // XXH3-64 of the bytes, if the caller knows it; else it is computed
};

// What a backend can do. check_capabilities() refuses one that lacks an operation or may evict what is pinned.
struct Capabilities {
  bool is_exist = false, put_from = false, get_into = false, remove = false;
  bool evictable_pins = true;  // the backend may drop an object that somebody pinned
  bool zero_copy = false;      // view() shows the arena's own memory
  bool on_device = false;      // that memory is a device's: views are not for the processor to read; fetch() works
};
// kFailedPrecondition naming what is missing.
Status check_capabilities(const Capabilities& capabilities);

// Readable bytes of one object. While it lives the owner doesn't use the memory for anything else.
class ObjectView {
 public:
  // What keeps the bytes; its destructor lets go.
  class Hold {
   public:
    virtual ~Hold() = default;
    virtual bool still_valid() const = 0;
  };
  ObjectView(std::span<const std::byte> bytes, ObjectInfo info, std::unique_ptr<Hold> hold)
      : bytes_(bytes), info_(info), hold_(std::move(hold)) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  const ObjectInfo& info() const { return info_; }
  // Ask AFTER using the bytes: false if the object was removed or its server has ended, so that what was computed from
  // it belongs to an entry that no longer exists. (A killed server can't say so; its bytes stay what they were.) False
  // after release().
  bool still_valid() const { return hold_ != nullptr && hold_->still_valid(); }
  void release() {
    hold_.reset();
    bytes_ = {};
  }

 private:
  std::span<const std::byte> bytes_;
  ObjectInfo info_;
  std::unique_ptr<Hold> hold_;
};

// Keeps an object's memory until it is released, dies, its time is over or its client's connection ends.
class Lease {
 public:
  Lease(ObjectInfo info, std::function<void()> release) : info_(info), release_(std::move(release)) {}
  Lease(Lease&& other) noexcept : info_(other.info_), release_(std::exchange(other.release_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      release();
      info_ = other.info_;
      release_ = std::exchange(other.release_, nullptr);
    }
    return *this;
  }
  ~Lease() { release(); }

  const ObjectInfo& info() const { return info_; }
  void release() {
    if (auto let_go = std::exchange(release_, nullptr)) let_go();
  }

 private:
  ObjectInfo info_;
  std::function<void()> release_;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual Capabilities capabilities() const = 0;
  // Of the arena this client is connected to; another value after the server was restarted.
  virtual std::uint64_t incarnation() const = 0;

  // What is known of a readable object; nullopt if there is none. Changes nothing, renews nothing.
  virtual Result<std::optional<ObjectInfo>> is_exist(std::string_view key) = 0;
  // Readable for everybody once it returns OK. kAlreadyExists if the key is live: never silent, the old bytes stay.
  // kPayloadTooLarge if the arena could not hold it even when empty; kResourceExhausted if no space came in time. While
  // it waits, the other calls of this client wait too.
  virtual Status put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options = {}) = 0;
  // Fills `destination`, which must be as long as the object. kNotFound if there is no such object, with field
  // "incarnation" if the arena is not the one asked for. On failure the content of `destination` is undefined, and
  // nothing writes to it any more.
  virtual Result<ObjectInfo> get_into(std::string_view key, std::span<std::byte> destination,
                                      std::uint64_t incarnation = kAnyIncarnation) = 0;
  virtual Result<RemoveOutcome> remove(std::string_view key) = 0;
  // As remove() of each; quicker, where each costs a message.
  virtual Result<std::vector<RemoveOutcome>> remove_all(std::span<const std::string_view> keys);
  // Several get_into() with one wait, into memory of the client's device or pinned for it, at multiples of 8 bytes. What
  // arrived is measured on the way (piece_hash.h), for the caller to compare, unless it wants kPlain copies, which need not
  // wait until the device's processors are free. kFailedPrecondition unless on_device. As long as any object is missing or of
  // another length none is read.
  struct Fetch {
    std::string_view key;
    std::span<std::byte> destination;
    std::uint64_t checksum = 0;  // result, if measured
  };
  enum class FetchMode : std::uint8_t { kMeasured, kPlain };
  virtual Status fetch(std::span<Fetch> fetches, std::uint64_t incarnation = kAnyIncarnation,
                       FetchMode mode = FetchMode::kMeasured);

  // Every object whose key begins with `prefix`. kInvalidArgument if it is empty.
  virtual Result<RemovedCount> remove_prefix(std::string_view prefix) = 0;
  // `ttl_us` 0: a pin, until released or until the client's connection ends.
  virtual Result<Lease> lease(std::string_view key, std::int64_t ttl_us,
                              std::uint64_t incarnation = kAnyIncarnation) = 0;
  // The arena's own memory where the backend has zero_copy, else a copy that the view owns.
  virtual Result<ObjectView> view(std::string_view key, std::uint64_t incarnation = kAnyIncarnation);
};

// `store`, unless check_capabilities() refuses it.
Result<std::unique_ptr<ObjectStore>> accept_backend(std::unique_ptr<ObjectStore> store);

// kNotFound, the one wording for "the objects of that incarnation are gone".
Status wrong_incarnation(std::uint64_t wanted, std::uint64_t present);
// kInvalidArgument unless `key` has 1 to kMaxKeyBytes bytes.
Status check_key(std::string_view key);
// kInvalidArgument: a destination must be as long as the object.
Status wrong_length(std::string_view key, std::uint64_t object_bytes, std::uint64_t destination_bytes);

}  // namespace levada::store
