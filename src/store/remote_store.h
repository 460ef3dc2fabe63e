// What: RemoteStore, an ObjectStore whose bytes travel through a socket: TCP, or a Unix socket for what can't be mapped.
// Owner: whoever opened it; leases must end before it.
// Thread: any; calls take turns on one connection.
// Invariant: an operation whose connection died is sent once more to whoever listens there now. A put that was carried
// out the first time is recognised by its length and checksum, never written twice.
// What a restarted server no longer has is kNotFound; whoever must tell the lives apart passes the incarnation.
#pragma once

#include "store/client_channel.h"
#include "store/object_store.h"

namespace levada::store {

class RemoteStore : public ObjectStore {
 public:
  static ClientChannel::OnConnected ignore_descriptors() {
    return [](const Frame&, std::vector<Fd>) { return Status(); };
  }
  RemoteStore(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock,
              ClientChannel::OnConnected on_connected = ignore_descriptors());

  ClientChannel& channel() { return channel_; }

  Capabilities capabilities() const override { return {true, true, true, true, /*evictable_pins=*/false, false}; }
  std::uint64_t incarnation() const override { return channel_.incarnation(); }
  Result<std::optional<ObjectInfo>> is_exist(std::string_view key) override;
  Status put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) override;
  Result<ObjectInfo> get_into(std::string_view key, std::span<std::byte> destination,
                              std::uint64_t incarnation) override;
  Result<RemoveOutcome> remove(std::string_view key) override;
  Result<std::vector<RemoveOutcome>> remove_all(std::span<const std::string_view> keys) override;
  Result<RemovedCount> remove_prefix(std::string_view prefix) override;
  Result<Lease> lease(std::string_view key, std::int64_t ttl_us, std::uint64_t incarnation) override;

 protected:
  // kInvalidArgument for the key, kPayloadTooLarge for what the arena could never hold. Connects.
  Status check_put(std::string_view key, std::uint64_t bytes);
  // After a kAlreadyExists: the object of that key has these bytes, so that an earlier attempt was carried out.
  bool already_ours(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options);

 private:
  // The reply, or the first of the two failures: of the way, or of the server.
  Result<Frame> ask(const ClientChannel::Request& request, std::span<std::byte> destination = {});
  ClientChannel channel_;
};

}  // namespace levada::store
