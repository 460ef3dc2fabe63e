#include "store/open_store.h"

#include "base/log.h"
#include "store/remote_store.h"
#include "store/shm_store.h"
#include "store/ucx_store.h"

namespace levada::store {

Result<std::unique_ptr<ObjectStore>> open_store(std::string_view url, std::string_view token,
                                                const ClientOptions& options, const Clock& clock) {
  LEVADA_ASSIGN_OR_RETURN(const Endpoint endpoint, parse_endpoint(url));
  if (endpoint.kind == Endpoint::Kind::kNvlink && options.device == nullptr)
    LEVADA_LOG_INFO("no device is open here: objects of ", url, " come through its socket");
  if (endpoint.kind == Endpoint::Kind::kShm ||
      (endpoint.kind == Endpoint::Kind::kNvlink && options.device != nullptr)) {
    LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store,
                            ShmStore::open(endpoint, std::string(token), options, clock));
    return accept_backend(std::move(store));
  }
  if (endpoint.kind == Endpoint::Kind::kUcx) {
    LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store,
                            UcxStore::open(endpoint, std::string(token), options, clock));
    return accept_backend(std::move(store));
  }
  auto store = std::make_unique<RemoteStore>(endpoint, std::string(token), options, clock);
  LEVADA_RETURN_IF_ERROR(store->channel().connect());
  return accept_backend(std::move(store));
}

}  // namespace levada::store
