// What: Access, who may call which endpoint.
// Owner: Api.
// Thread: I/O thread.
// Invariant: without keys everything is open; keys are compared in constant time.
// kOpen: no key ever. kUser: api_key. kAdmin: admin_api_key where one is set, api_key otherwise.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "http/server.h"

namespace levada::serve {

enum class Access : std::uint8_t { kOpen, kUser, kAdmin };

class AccessKeys {
 public:
  AccessKeys(std::string api_key, std::string admin_api_key)
      : api_key_(std::move(api_key)), admin_api_key_(std::move(admin_api_key)) {}

  // kUnauthenticated unless the request carries "Authorization: Bearer KEY", or else "x-api-key: KEY", with a key that
  // opens this door; the administrator's key opens all.
  Status check(const http::Request& request, Access access) const;

 private:
  std::string api_key_, admin_api_key_;
};

}  // namespace levada::serve
