// What: UcxStore, an ObjectStore whose client gets objects out of the server's memory over UCX.
// Owner: whoever opened it; leases must end before it.
// Thread: any; calls take turns.
// Invariant: requests, puts and removals are RemoteStore's, over the same connection. An object is read only under a lease
// that outlives the read, and the read counts only if the connection, and with it the lease, is still there afterwards.
#pragma once

#include <atomic>
#include <mutex>

#include "store/remote_store.h"
#include "store/ucx_memory.h"

namespace levada::store {

class UcxStore final : public RemoteStore {
 public:
  // As ClientChannel::connect(); kFailedPrecondition without UCX. Says in the log over what the bytes travel.
  static Result<std::unique_ptr<UcxStore>> open(Endpoint endpoint, std::string token, const ClientOptions& options,
                                                const Clock& clock);
  Result<ObjectInfo> get_into(std::string_view key, std::span<std::byte> destination,
                              std::uint64_t incarnation) override;

 private:
  UcxStore(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock);
  Status open_reader();
  void announce();
  // nullopt: the connection was lost meanwhile.
  Result<std::optional<ObjectInfo>> try_get(std::string_view key, std::span<std::byte> destination,
                                            std::uint64_t incarnation);

  const ClientOptions options_;
  const Clock& clock_;
  std::atomic<std::uint64_t> connections_{0};  // made so far
  std::mutex mutex_;
  std::unique_ptr<UcxReader> reader_;
  std::uint64_t reader_connection_ = 0;  // whose memory reader_ reads
  bool announced_ = false;
};

}  // namespace levada::store
