// What: UcxStore, an ObjectStore whose objects travel over UCX.
// Owner: whoever opened it; leases must end before it.
// Thread: any; calls take turns.
// Invariant: requests are RemoteStore's, over the same connection; only the bytes of larger objects go another way. They are read
// under a lease that outlives the read, and written to a place that ends with the connection. After any failure on that
// way the connection is closed, so that the server holds nothing for a call that has ended.
#pragma once

#include <atomic>
#include <mutex>

#include "store/remote_store.h"
#include "store/ucx_module.h"

namespace levada::store {

class UcxStore final : public RemoteStore {
 public:
  // As ClientChannel::connect(); kFailedPrecondition without UCX. Says in the log over what the bytes travel.
  static Result<std::unique_ptr<UcxStore>> open(Endpoint endpoint, std::string token, const ClientOptions& options,
                                                const Clock& clock);
  Status put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) override;
  Result<ObjectInfo> get_into(std::string_view key, std::span<std::byte> destination,
                              std::uint64_t incarnation) override;
  // What UCX chose: "cma/memory posix/memory", "tcp/eth0".
  std::string transports() const;

 private:
  UcxStore(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock);
  // REQUIRES, with those that follow: mutex_ is held. A link to the server of the present connection.
  Status open_link(const UcxLink::GoOn& go_on);
  // Each leaves no link behind if the way broke.
  Result<ObjectInfo> try_get(std::string_view key, std::span<std::byte> destination, std::uint64_t incarnation,
                             std::int64_t deadline_us);
  // Sets `sent_again` if an earlier attempt may have been carried out, or if no time is left for another.
  Status try_put(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options, bool& sent_again);
  void give_up();
  UcxLink::GoOn until(std::int64_t deadline_us);

  const ClientOptions options_;
  const Clock& clock_;
  std::atomic<std::uint64_t> connections_{0};  // made so far
  mutable std::mutex mutex_;
  std::unique_ptr<UcxLink> link_;
  std::uint64_t link_connection_ = 0;  // whose server it leads to
  std::string announced_;
};

}  // namespace levada::store
