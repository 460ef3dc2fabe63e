#include "http/route_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace levada::http {

RouteTable::RouteTable(const std::string& allow_origin, Metrics& metrics)
    : cors_line_(allow_origin.empty() ? "" : "Access-Control-Allow-Origin: " + allow_origin + "\r\n"),
      metrics_(metrics),
      other_requests_(request_counter("other", "other")) {}

Counter& RouteTable::request_counter(const std::string& method, const std::string& path) {
  return metrics_.counter("sglang:http_requests_total", "HTTP requests by route.",
                          {{"endpoint", path}, {"method", method}});
}

void RouteTable::add(std::string method, std::string path, Handler handler, Origins origins) {
  Counter& requests = request_counter(method, path);
  const bool fresh =
      routes_[std::move(path)].emplace(std::move(method), Route{std::move(handler), origins, &requests}).second;
  LEVADA_CHECK(fresh, "a route was declared twice");
}

std::vector<std::string> RouteTable::names() const {
  std::vector<std::string> names;
  for (const auto& [path, methods] : routes_) {
    for (const auto& [method, route] : methods) names.push_back(method + " " + path);
  }
  std::sort(names.begin(), names.end());
  return names;
}

RouteAnswer RouteTable::look_up(const Request& request) const {
  const std::string& method = request.method;
  const auto at_path = routes_.find(request.path);
  if (at_path == routes_.end()) {
    RouteAnswer answer{.common_lines = cors_line_, .requests = &other_requests_};
    if (method == "OPTIONS" && request.path == "*") {
      answer.status = 204;
      answer.extra_lines = "Allow: GET, HEAD, OPTIONS, POST\r\n";
    } else {
      answer.status = 404;
      answer.message = "there is nothing at " + request.path;
    }
    return answer;
  }
  const Methods& methods = at_path->second;
  auto found = methods.find(method);
  if (found == methods.end() && method == "HEAD") found = methods.find("GET");
  if (found == methods.end()) return method_missing(method, methods);
  const Route& route = found->second;
  if (route.origins == Origins::kAny)
    return {.handler = &route.handler, .common_lines = cors_line_, .requests = route.requests};
  if (is_from_another_origin(request))
    return {.status = 403, .message = "web pages of other origins may not use this", .requests = route.requests};
  return {.handler = &route.handler, .requests = route.requests};
}

RouteAnswer RouteTable::method_missing(const std::string& method, const Methods& methods) const {
  std::string allowed = "OPTIONS", for_any_origin;
  for (const auto& [name, route] : methods) {
    const std::string names = name == "GET" ? ", GET, HEAD" : ", " + name;
    allowed += names;
    if (route.origins == Origins::kAny) for_any_origin += names;
  }
  RouteAnswer answer{.extra_lines = "Allow: " + allowed + "\r\n", .requests = &other_requests_};
  if (!for_any_origin.empty()) answer.common_lines = cors_line_;
  if (method == "OPTIONS") {
    answer.status = 204;
    if (!answer.common_lines.empty())
      answer.extra_lines += "Access-Control-Allow-Methods: OPTIONS" + for_any_origin +
                            "\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, *\r\n";
  } else {
    answer.status = 405;
    answer.message = "the method " + method + " is not allowed here; use " + allowed;
  }
  return answer;
}

bool is_from_another_origin(const Request& request) {
  // What the browser itself concluded goes before our guess, which a proxy that rewrites Host would spoil.
  if (const auto fetch = request.headers.find("sec-fetch-site"); fetch != request.headers.end())
    return fetch->second != "same-origin" && fetch->second != "none";
  const auto origin = request.headers.find("origin");
  if (origin == request.headers.end()) return false;
  const auto host = request.headers.find("host");
  const std::size_t scheme = origin->second.find("://");
  return host == request.headers.end() || scheme == std::string::npos ||
         origin->second.substr(scheme + 3) != host->second;
}

}  // namespace levada::http
