// What: LocalStore, the ObjectStore of the process that owns the arena.
// Owner: whoever made it; it borrows the Arena, which must outlive it.
// Thread: any.
// Invariant: as ObjectStore's; views show the arena's memory.
// The publisher of captures writes through Arena::reserve instead, straight into a slot.
#pragma once

#include "store/arena.h"

namespace levada::store {

class LocalStore final : public ObjectStore {
 public:
  explicit LocalStore(Arena& arena) : arena_(arena) {}

  Capabilities capabilities() const override { return {true, true, true, true, /*evictable_pins=*/false, true}; }
  std::uint64_t incarnation() const override { return arena_.incarnation(); }
  Result<std::optional<ObjectInfo>> is_exist(std::string_view key) override;
  Status put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) override {
    return arena_.put_from(key, bytes, options);
  }
  Result<ObjectInfo> get_into(std::string_view key, std::span<std::byte> destination,
                              std::uint64_t incarnation) override;
  Result<RemoveOutcome> remove(std::string_view key) override;
  Result<RemovedCount> remove_prefix(std::string_view prefix) override;
  Result<Lease> lease(std::string_view key, std::int64_t ttl_us, std::uint64_t incarnation) override;
  Result<ObjectView> view(std::string_view key, std::uint64_t incarnation) override {
    return arena_.view(key, incarnation);
  }

 private:
  Arena& arena_;
};

}  // namespace levada::store
