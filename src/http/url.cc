#include "http/url.h"

#include <charconv>
#include <string_view>

namespace levada::http {

Result<HttpUrl> parse_http_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto bad = [&] { return invalid_argument("must be http://host:port, got \"" + url + "\""); };
  if (url.compare(0, kScheme.size(), kScheme) != 0) return bad();
  std::string rest = url.substr(kScheme.size());
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0 || rest.find_first_of("/@?# ") != std::string::npos) return bad();
  HttpUrl parsed;
  parsed.host = rest.substr(0, colon);
  const char* begin = rest.data() + colon + 1;
  const char* end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(begin, end, parsed.port);
  if (error != std::errc() || stop != end || parsed.port == 0) return bad();
  return parsed;
}

}  // namespace levada::http
