#include "serve/access.h"

#include <strings.h>

#include "base/secret.h"

namespace levada::serve {

std::string bearer_key(const http::Request& request) {
  constexpr std::size_t kScheme = 7;
  const auto header = request.headers.find("authorization");
  if (header == request.headers.end() || header->second.size() < kScheme) return {};
  if (strncasecmp(header->second.c_str(), "bearer ", kScheme) != 0) return {};
  return header->second.substr(kScheme);
}

Status AccessKeys::check(const http::Request& request, Access access) const {
  const bool own_key = access == Access::kAdmin && !admin_api_key_.empty();
  const std::string& needed = own_key ? admin_api_key_ : api_key_;
  if (access == Access::kOpen || needed.empty()) return {};
  const std::string given = bearer_key(request);
  if (equal_in_constant_time(given, needed)) return {};
  if (!admin_api_key_.empty() && equal_in_constant_time(given, admin_api_key_)) return {};
  return Status(StatusCode::kUnauthenticated, std::string("a valid ") + (own_key ? "administrator's " : "") +
                                                  "API key is needed: send it as 'Authorization: Bearer KEY'");
}

}  // namespace levada::serve
