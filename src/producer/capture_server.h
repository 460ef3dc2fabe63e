// What: CaptureServer, the one way this room talks to a serving engine: an HTTP exchange, and the description of its
// capture side.
// Owner: whoever composes the producer; each worker has its own.
// Thread: one at a time.
// Invariant: nothing a server answers is believed unread: every number and name in a description is checked.
// Tests script this interface; HttpCaptureServer is the real one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "http/client.h"
#include "producer/store_choice.h"

namespace levada::producer {

class CaptureServer {
 public:
  virtual ~CaptureServer() = default;
  // As http::Client: any response with a status is a success, kUnavailable means that nobody knows whether the request
  // was carried out.
  virtual Result<http::ClientResponse> post(const std::string& target, const std::string& body,
                                            std::int64_t timeout_us) = 0;
  virtual Result<http::ClientResponse> get(const std::string& target, std::int64_t timeout_us) = 0;
};

// Makes a connection to the server at a URL; each worker asks for its own.
using ConnectServer = std::function<std::unique_ptr<CaptureServer>(const std::string& url)>;

// `list`: URLs with commas between them, each checked; one may stand there several times for several workers.
Result<std::vector<std::string>> parse_server_urls(const std::string& list);

// Over TCP, with `token` as bearer token unless it is empty. After `stop` every call, and the one under way, ends at once
// with kAborted. REQUIRES: http::parse_http_url(url) succeeds.
std::unique_ptr<CaptureServer> http_capture_server(const std::string& url, const std::string& token,
                                                   std::stop_token stop = {},
                                                   std::map<std::string, std::string> headers = {});

// What GET /server_info says of the capture side.
struct CaptureSide {
  std::string store_id;
  StoreUrls store;
  std::uint64_t incarnation = 0;  // of its arena
  std::int64_t hidden_size = 0;   // 0: not said
  std::vector<std::int32_t> aux_layer_ids;
};

// kUnavailable if it can't be reached or answers no description, kFailedPrecondition if it does not capture.
Result<CaptureSide> describe_capture(CaptureServer& server, std::int64_t timeout_us);

}  // namespace levada::producer
