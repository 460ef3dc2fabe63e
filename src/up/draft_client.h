// What: DraftClient, the drafts of a running server over its HTTP API: loaded, shown, unloaded, rolled back, measured.
// Owner: `levada draft` and the flywheel.
// Thread: one at a time; blocks.
// Invariant: what a server answers is checked before it is used; a refusal keeps the server's own words.
// Format: docs/api.md, "Drafts".
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "http/client.h"
#include "http/url.h"

namespace levada::up {

struct ServedDraft {
  std::string name, path;
  std::int64_t version = 0, block_size = 0, layers = 0, bytes = 0;
  std::int64_t steps = 0, drafts = 0, accepted = 0;
  std::optional<double> accept_length;
};

struct ServedDrafts {
  std::optional<ServedDraft> serving, previous;
  std::string json;  // as the server wrote it
};

// What a greedy answer cost.
struct DraftedAnswer {
  std::int64_t tokens = 0, steps = 0, accepted = 0;
  double seconds = 0;
  double accept_length() const {
    return steps > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(steps) : 1;
  }
};

class DraftClient {
 public:
  DraftClient(const http::HttpUrl& url, std::string key) : client_(url.host, url.port), key_(std::move(key)) {}

  // kUnavailable if the server can't be reached or is at fault, kInvalidArgument if it refuses, kDataLoss if it is none of
  // ours.
  Result<ServedDrafts> load(const std::string& path, const std::string& name);
  Result<ServedDrafts> unload();
  Result<ServedDrafts> roll_back();
  Result<ServedDrafts> list();
  // A greedy answer to these tokens, which is kept out of the live samples.
  Result<DraftedAnswer> answer(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens);

  void stop_with(std::stop_token stop) { stop_ = std::move(stop); }

 private:
  Result<std::string> ask(std::string method, std::string target, std::string body);
  Result<ServedDrafts> drafts(std::string method, std::string target, std::string body = {});

  http::Client client_;
  std::string key_;
  std::stop_token stop_;
};

}  // namespace levada::up
