#include "serve/access.h"

#include "base/secret.h"

namespace levada::serve {

namespace {

// Anthropic's clients have a header of their own.
std::string_view key_of(const http::Request& request) {
  const auto own = request.headers.find("x-api-key");
  const std::string_view bearer = http::bearer_token(request);
  return bearer.empty() && own != request.headers.end() ? std::string_view(own->second) : bearer;
}

}  // namespace

Status AccessKeys::check(const http::Request& request, Access access) const {
  const bool own_key = access == Access::kAdmin && !admin_api_key_.empty();
  const std::string& needed = own_key ? admin_api_key_ : api_key_;
  if (access == Access::kOpen || needed.empty()) return {};
  const std::string_view given = key_of(request);
  if (equal_in_constant_time(given, needed)) return {};
  if (!admin_api_key_.empty() && equal_in_constant_time(given, admin_api_key_)) return {};
  return Status(StatusCode::kUnauthenticated,
                std::string("a valid ") + (own_key ? "administrator's " : "") +
                    "API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
}

}  // namespace levada::serve
