// What: mount_registry, the registry's operations as HTTP routes: POST /v1/fanout/{operation}, JSON in and out; and GET
// /metrics, for either token.
// Owner: free function; the routes borrow the Registry.
// Thread: handlers run on the HTTP server's I/O thread; answers come from the registry's.
// Invariant: a call without a valid token changes nothing (401); a consumer's token on a producer's operation changes
// nothing (403). Tokens are compared in constant time and never logged or echoed. A body is at most 1 MiB.
// Format: docs/formats/registry.md.
#pragma once

#include <string>

#include "base/status.h"
#include "http/server.h"
#include "registry/ref_json.h"
#include "registry/registry.h"

namespace levada::registry {

struct Tokens {
  std::string consumer;  // may call consumer operations
  std::string producer;  // may call every operation; empty: producer operations are refused over HTTP
};

// kInvalidArgument if the consumer's token is empty: an open registry is not served. `registry` must outlive the server's
// run(); stop the registry first, so that what waits is answered.
Status mount_registry(http::Server& server, Registry& registry, const Tokens& tokens, const RefContext& context);

}  // namespace levada::registry
