// What: open_store(), a client for whatever a store's URL says: tcp://host:port, ucx://host:port,
// shm:///path/of/socket or nvlink:///path/of/socket.
// Owner: the caller owns the store; the clock must outlive it.
// Thread: any.
// Invariant: a backend that lacks one of the four operations or may evict what is pinned never gets out of here.
#pragma once

#include "store/client_channel.h"
#include "store/object_store.h"

namespace levada::store {

// Connected and greeted. kInvalidArgument for a bad URL, kUnavailable if nobody answers, kUnauthenticated for a wrong
// token, kFailedPrecondition for an unfit backend.
Result<std::unique_ptr<ObjectStore>> open_store(std::string_view url, std::string_view token,
                                                const ClientOptions& options, const Clock& clock);

}  // namespace levada::store
