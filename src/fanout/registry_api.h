// What: RegistryApi, the registry as its callers see it: one blocking call per operation, in this process or over HTTP.
// Owner: whoever composes the process; roles borrow it.
// Thread: any; a call that waits (wait_ms) blocks only its caller.
// Invariant: a success is durable. kUnavailable means the call may or may not have happened: repeat it unchanged.
// Implementations: registry::LocalApi (same process), registry::RegistryClient (HTTP).
#pragma once

#include <utility>
#include <variant>

#include "fanout/error.h"
#include "fanout/messages.h"

namespace levada::fanout {

class RegistryApi {
 public:
  virtual ~RegistryApi() = default;

  // Sends `request` and waits for its answer; the reply is of the request's own kind.
  template <class R>
  Outcome<typename R::Reply> call(R request) {
    Outcome<Reply> outcome = call_any(Request(std::move(request)));
    if (!outcome.ok()) return outcome.error();
    return std::get<typename R::Reply>(std::move(*outcome));
  }

 protected:
  virtual Outcome<Reply> call_any(Request request) = 0;
};

}  // namespace levada::fanout
