// What: Router, the http server's route table behind the access check.
// Owner: Api, while it registers routes.
// Thread: start-up.
// Invariant: no route exists without a stated Access.
// routes() is what /openapi.json lists.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "http/server.h"
#include "serve/access.h"
#include "serve/error.h"

namespace levada::serve {

class Router {
 public:
  // Both must outlive the server's run().
  Router(http::Server& server, const AccessKeys& keys) : server_(server), keys_(keys) {}

  struct Declared {
    std::string method, path;
    Access access;
  };

  // Web pages of other origins may use what users may, but nothing that is the administrator's.
  void add(std::string method, std::string path, Access access, http::Handler handler) {
    routes_.push_back({method, path, access});
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

  // Every route so far, in the order of their declaration.
  const std::vector<Declared>& routes() const { return routes_; }

 private:
  http::Server& server_;
  const AccessKeys& keys_;
  std::vector<Declared> routes_;
};

}  // namespace levada::serve
