// What: Context, UCX with one worker: what a port and a link have in common.
// Owner: the port or link.
// Thread: one at a time.
// Invariant: UCX is told by its own interface, not by the environment, to leave signals, standard output and, at loopback,
// other devices alone. Once the Context is gone UCX touches no memory that was ever given to it.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "store/ucx_module.h"

namespace levada::store::ucx {

class Context {
 public:
  static Result<std::unique_ptr<Context>> create(bool loopback_only);
  ~Context();

  Status on_message(unsigned id, ucp_am_recv_callback_t callback, void* self) const;
  // Progress, or a sleep of `most_ms` until there may be some.
  void turn(int most_ms) const;
  // Ends an endpoint at once, with all that is under way on it; what was, is told to its callbacks during turn().
  void close(ucp_ep_h endpoint) const;

  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }

 private:
  Context() = default;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_ = -1;  // UCX's
};

Status failed(const char* what, ucs_status_t status);
// The transports of the endpoint's lanes, sorted: "cma/memory posix/memory".
std::string transports_of(ucp_ep_h endpoint);

}  // namespace levada::store::ucx
