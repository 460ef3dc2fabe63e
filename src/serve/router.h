// What: Router, the http server's route table behind the access check.
// Owner: Api, while it registers routes.
// Thread: start-up.
// Invariant: no route exists without a stated Access.
// Private to serve's route groups.
#pragma once

#include <string>
#include <utility>

#include "http/server.h"
#include "serve/access.h"
#include "serve/error.h"

namespace levada::serve {

class Router {
 public:
  // Both must outlive the server's run().
  Router(http::Server& server, const AccessKeys& keys) : server_(server), keys_(keys) {}

  // Web pages of other origins may use what users may, but nothing that is the administrator's.
  void add(std::string method, std::string path, Access access, http::Handler handler) {
    const http::Origins origins = access == Access::kAdmin ? http::Origins::kOwn : http::Origins::kAny;
    server_.route(
        std::move(method), std::move(path),
        [&keys = keys_, access, handler = std::move(handler)](http::Request request, http::Responder responder) {
          if (const Status allowed = keys.check(request, access); !allowed.ok()) {
            return respond_error(responder, allowed);
          }
          handler(std::move(request), std::move(responder));
        },
        origins);
  }

 private:
  http::Server& server_;
  const AccessKeys& keys_;
};

}  // namespace levada::serve
