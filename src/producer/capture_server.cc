#include "producer/capture_server.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/hex.h"
#include "http/url.h"

namespace levada::producer {
namespace {

using Json = nlohmann::json;

class HttpCaptureServer final : public CaptureServer {
 public:
  HttpCaptureServer(const http::HttpUrl& url, const std::string& token, std::stop_token stop,
                    std::map<std::string, std::string> headers)
      : client_(url.host, url.port), stop_(std::move(stop)), headers_(std::move(headers)) {
    if (!token.empty()) headers_["Authorization"] = "Bearer " + token;
  }

  Result<http::ClientResponse> post(const std::string& target, const std::string& body,
                                    std::int64_t timeout_us) override {
    http::ClientRequest request = request_for("POST", target, timeout_us);
    request.body = body;
    request.headers["Content-Type"] = "application/json";
    return client_.request(request);
  }

  Result<http::ClientResponse> get(const std::string& target, std::int64_t timeout_us) override {
    return client_.request(request_for("GET", target, timeout_us));
  }

 private:
  http::ClientRequest request_for(const char* method, const std::string& target, std::int64_t timeout_us) const {
    http::ClientRequest request;
    request.method = method;
    request.target = target;
    request.headers = headers_;
    request.timeout = std::chrono::milliseconds(timeout_us / 1000);
    request.stop = stop_;
    return request;
  }

  http::Client client_;
  const std::stop_token stop_;
  std::map<std::string, std::string> headers_;
};

std::string string_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<CaptureSide> read_description(const Json& capture) {
  CaptureSide side;
  side.store_id = string_at(capture, "store_id");
  if (side.store_id.empty()) return unavailable("/server_info: capture.store_id is missing");
  const auto incarnation = parse_hex64(string_at(capture, "incarnation"));
  if (!incarnation.ok()) return unavailable("/server_info: capture.incarnation: " + incarnation.status().message());
  side.incarnation = *incarnation;
  if (const auto store = capture.find("store"); store != capture.end() && store->is_object()) {
    side.store = {string_at(*store, "shm"), string_at(*store, "tcp"), string_at(*store, "ucx")};
  }
  if (const auto width = capture.find("hidden_size"); width != capture.end() && width->is_number_unsigned()) {
    side.hidden_size = static_cast<std::int64_t>(std::min<std::uint64_t>(width->get<std::uint64_t>(), 1 << 24));
  }
  if (const auto layers = capture.find("aux_layer_ids"); layers != capture.end() && layers->is_array()) {
    for (const Json& layer : *layers) {
      if (!layer.is_number_integer()) return unavailable("/server_info: capture.aux_layer_ids holds no layer ids");
      side.aux_layer_ids.push_back(layer.get<std::int32_t>());
    }
  }
  return side;
}

}  // namespace

Result<std::vector<std::string>> parse_server_urls(const std::string& list) {
  std::vector<std::string> urls;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    std::string url = list.substr(begin, comma - begin);
    url.erase(0, url.find_first_not_of(' '));
    url.erase(url.find_last_not_of(' ') + 1);
    if (!url.empty() && url.back() == '/') url.pop_back();
    if (const auto parsed = http::parse_http_url(url); !parsed.ok()) {
      return invalid_argument(parsed.status().message(), "server_urls");
    }
    urls.push_back(std::move(url));
    begin = comma + 1;
  }
  return urls;
}

std::unique_ptr<CaptureServer> http_capture_server(const std::string& url, const std::string& token,
                                                   std::stop_token stop, std::map<std::string, std::string> headers) {
  return std::make_unique<HttpCaptureServer>(*http::parse_http_url(url), token, std::move(stop), std::move(headers));
}

Result<CaptureSide> describe_capture(CaptureServer& server, std::int64_t timeout_us) {
  LEVADA_ASSIGN_OR_RETURN(const http::ClientResponse response, server.get("/server_info", timeout_us));
  if (response.status != 200) return unavailable("/server_info answers " + std::to_string(response.status));
  const Json info = Json::parse(response.body, nullptr, false);
  if (!info.is_object()) return unavailable("/server_info answers no JSON object");
  const auto capture = info.find("capture");
  if (capture == info.end() || !capture->is_object() || capture->value("enabled", Json()) != true) {
    return Status(StatusCode::kFailedPrecondition, "the server does not capture: start it with --enable-spec-capture");
  }
  return read_description(*capture);
}

}  // namespace levada::producer
