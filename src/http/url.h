// What: "http://host:port" in its parts, the one form in which processes of a run name each other's servers.
// Owner: values.
// Thread: any.
// Invariant: what parse_http_url accepts has a host and a port other than 0, and no path, query, login or other scheme.
// A slash at the end is allowed and means nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace levada::http {

struct HttpUrl {
  std::string host;
  std::uint16_t port = 0;
};

// kInvalidArgument naming the URL otherwise.
Result<HttpUrl> parse_http_url(const std::string& url);

}  // namespace levada::http
