// What: ShmStore, an ObjectStore over memory that the server shares, of the host or of a device: reads map it and copy nothing, everything else is
// asked through the Unix socket.
// Owner: whoever opened it; views may outlive a reconnection (they hold their mapping), but not the store.
// Thread: any.
// Invariant: an object is read only while one of this process's reader slots names it, so that its memory can't be used
// anew under the reader. The mapping is read-only. No number in shared memory is trusted beyond the mapping.
// A look-up makes no system call, but for one a millisecond that notices a server that was killed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "store/batch_copier.h"
#include "store/remote_store.h"
#include "store/shared_index.h"

namespace levada::store {

class ShmStore final : public ObjectStore {
 public:
  static Result<std::unique_ptr<ObjectStore>> open(const Endpoint& endpoint, const std::string& token,
                                                   const ClientOptions& options, const Clock& clock);

  Capabilities capabilities() const override {
    return {true, true, true, true, /*evictable_pins=*/false, /*zero_copy=*/true, /*on_device=*/device_ != nullptr};
  }
  std::uint64_t incarnation() const override { return remote_.incarnation(); }
  Result<std::optional<ObjectInfo>> is_exist(std::string_view key) override;
  Status put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) override {
    return remote_.put_from(key, bytes, options);
  }
  Result<ObjectInfo> get_into(std::string_view key, std::span<std::byte> destination,
                              std::uint64_t incarnation) override;
  Result<RemoveOutcome> remove(std::string_view key) override { return remote_.remove(key); }
  Result<std::vector<RemoveOutcome>> remove_all(std::span<const std::string_view> keys) override {
    return remote_.remove_all(keys);
  }
  Status fetch(std::span<Fetch> fetches, std::uint64_t incarnation, FetchMode mode) override;
  Result<RemovedCount> remove_prefix(std::string_view prefix) override { return remote_.remove_prefix(prefix); }
  Result<Lease> lease(std::string_view key, std::int64_t ttl_us, std::uint64_t incarnation) override {
    return remote_.lease(key, ttl_us, incarnation);
  }
  Result<ObjectView> view(std::string_view key, std::uint64_t incarnation) override;

 private:
  struct Mapping;
  class ViewHold;
  ShmStore(const Endpoint& endpoint, const std::string& token, const ClientOptions& options, const Clock& clock);
  Status map(const Frame& hello, std::vector<Fd> descriptors);
  // The mapping of a server that lives, connecting anew if it doesn't.
  Result<std::shared_ptr<Mapping>> current();
  // Held by a reader slot; nullopt if the server says that there is no such object.
  Result<std::optional<ObjectView>> try_view(std::string_view key, std::uint64_t incarnation);

  const Clock& clock_;
  device::Device* const device_;  // null: the objects are in host memory
  std::mutex copy_mutex_;
  std::unique_ptr<BatchCopier> copier_;
  std::mutex mutex_;
  std::shared_ptr<Mapping> mapping_;  // shared with the views made from it
  std::atomic<std::int64_t> alive_until_us_{0};
  RemoteStore remote_;  // last: its connecting calls map()
};

}  // namespace levada::store
