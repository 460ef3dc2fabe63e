// What: ScriptedServer, a capture server without an engine: it answers the protocol over a real arena, keeps a journal as
// ours does, and misbehaves as ordered.
// Owner: tests.
// Thread: the test's.
// Invariant: without faults its objects and replies are what a correct server gives; each fault is one line of the fault
// table (spec §7.2).
// The numbers in a captured state are a function of the token and its place, so that a recapture is recognised.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/hash.h"
#include "base/hex.h"
#include "producer/capture_call.h"
#include "producer/capture_server.h"
#include "store/arena.h"

namespace levada::producer {

enum class ServerFault : std::uint8_t {
  kNone,
  kRequestLost,   // nothing happens, nobody answers
  kReplyLost,     // everything is written, nobody answers
  kErrorRow,      // the last item of the batch fails
  kHopelessRow,   // … for good
  kShortRows,     // the last item has fewer rows than its prompt has tokens: a prefix hit
  kWrongLayers,   // … other layers
  kMissingName,   // … no loss_mask
  kNoResult,      // … no spec_capture at all
  kMalformedRow,  // … is no object
  kForeignRow,    // … belongs to another sample
  kFewRows,       // the last row is missing
  kRefused,       // 503
  kUnauthorized,  // 401
};

class ScriptedServer {
 public:
  using Json = nlohmann::json;

  ScriptedServer(std::string url, CaptureContract contract, const Clock& clock)
      : url_(std::move(url)), contract_(std::move(contract)), clock_(clock) {
    restart();
  }

  // A new life on the same addresses.
  void restart() {
    arena_ = *store::Arena::create({.bytes = 1 << 18, .max_objects = 512, .prefault = false}, clock_);
    journal_.clear();
    is_down = false;
  }
  void die() {
    is_down = true;
    arena_.reset();
  }

  const std::string& url() const { return url_; }
  // Made up, unless a real store serves the arena.
  std::string store_url() const { return real_store_url.empty() ? "shm://" + url_ : real_store_url; }
  std::string real_store_url;
  store::Arena* arena() { return arena_.get(); }
  std::int64_t captures() const { return captures_; }
  const std::vector<std::string>& extra_keys() const { return extra_keys_; }

  bool is_down = false;
  std::int64_t unknown_token = -1;  // a body with this token in a prompt is refused as a whole: 400
  // Asked before each /generate.
  std::function<ServerFault()> fault;

  Result<http::ClientResponse> post(const std::string& target, const std::string& body) {
    if (is_down) return unavailable("connection refused");
    const Json request = Json::parse(body);
    if (target != "/generate") return respond(404, "{}");
    if (!request.contains("spec_capture")) return respond(200, answers(request).dump());
    for (const Json& ids : request["input_ids"]) {
      if (std::find(ids.begin(), ids.end(), Json(unknown_token)) != ids.end())
        return respond(400, "outside the vocabulary");
    }
    const ServerFault order = fault ? fault() : ServerFault::kNone;
    if (order == ServerFault::kRequestLost) return unavailable("connection reset");
    if (order == ServerFault::kRefused) return respond(503, "{\"error\":\"draining\"}");
    if (order == ServerFault::kUnauthorized) return respond(401, "{}");
    Json rows = Json::array();
    const std::size_t count = request["spec_capture"].size();
    for (std::size_t i = 0; i < count; ++i) {
      extra_keys_.push_back(request["extra_key"][i]);
      const bool is_last = i + 1 == count;
      if (is_last && order == ServerFault::kFewRows) continue;
      rows.push_back(row(request["input_ids"][i], request["spec_capture"][i], is_last ? order : ServerFault::kNone));
    }
    if (order == ServerFault::kReplyLost) return unavailable("connection reset");
    return respond(200, rows.dump());
  }

  Result<http::ClientResponse> get(const std::string& target) {
    if (is_down) return unavailable("connection refused");
    const Json info{{"capture",
                     {{"enabled", true},
                      {"store_id", contract_.store_id},
                      {"incarnation", hex64(arena_->incarnation())},
                      {"hidden_size", contract_.hidden_size},
                      {"aux_layer_ids", contract_.aux_layer_ids},
                      {"store", {{"shm", store_url()}}}}}};
    return respond(target == "/server_info" ? 200 : 404, info.dump());
  }

 private:
  static Result<http::ClientResponse> respond(int status, std::string body) {
    http::ClientResponse response;
    response.status = status;
    response.body = std::move(body);
    return response;
  }

  // Greedy: token t is answered by t + 1, t + 2, … as far as was asked.
  static Json answers(const Json& request) {
    Json rows = Json::array();
    for (std::size_t i = 0; i < request["input_ids"].size(); ++i) {
      const std::int64_t last = request["input_ids"][i].back();
      Json ids = Json::array();
      for (std::int64_t k = 1; k <= request["sampling_params"][i]["max_new_tokens"].get<std::int64_t>(); ++k) {
        ids.push_back(last + k);
      }
      rows.push_back({{"output_ids", ids}});
    }
    return rows;
  }

  Json row(const Json& ids, const Json& item, ServerFault order) {
    if (order == ServerFault::kMalformedRow) return 7;
    if (order == ServerFault::kNoResult) return {{"meta_info", Json::object()}};
    const std::string sample_id = item["sample_id"];
    if (order == ServerFault::kErrorRow || order == ServerFault::kHopelessRow) {
      Json error{{"sample_id", sample_id}, {"error", "the arena is full"}};
      if (order == ServerFault::kHopelessRow) error["retryable"] = false;
      return {{"meta_info", {{"spec_capture", error}}}};
    }
    Json result = capture(ids, item);
    if (order == ServerFault::kForeignRow) result["sample_id"] = "run:another";
    if (order == ServerFault::kWrongLayers) result["aux_layer_ids"] = {2, 1};
    if (order == ServerFault::kMissingName) result["features"].erase("loss_mask");
    if (order == ServerFault::kShortRows) result["features"]["hidden_states"]["shape"][1] = ids.size() - 1;
    return {{"meta_info", {{"spec_capture", result}}}};
  }

  Json capture(const Json& ids, const Json& item) {
    const std::string sample_id = item["sample_id"];
    const std::uint32_t generation = item["gen"];
    const auto recorded = journal_.find(sample_id);
    if (recorded != journal_.end() && recorded->second.first > generation) {
      return {{"sample_id", sample_id}, {"error", "stale generation"}};
    }
    if (recorded != journal_.end() && recorded->second.first == generation) return recorded->second.second;
    captures_ += 1;
    Json result{{"sample_id", sample_id},
                {"store_id", item["store_id"]},
                {"gen", generation},
                {"aux_layer_ids", contract_.aux_layer_ids},
                {"incarnation", hex64(arena_->incarnation())},
                {"store", {{"shm", store_url()}}}};
    const auto put = [&](const std::string& name, const char* dtype, Json shape, std::span<const std::byte> bytes) {
      const std::string key = core::object_key(item["store_id"].get<std::string>(), sample_id, generation, name);
      arena_->remove(key);  // what an attempt before left half-done
      const Status status = arena_->put_from(key, bytes);
      LEVADA_CHECK(status.ok(), status.to_string().c_str());
      result["features"][name] = {{"shape", shape}, {"dtype", dtype}, {"checksum", hex64(hash64(bytes))}};
    };
    std::vector<std::uint16_t> states;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (std::int64_t i = 0; i < contract_.aux_width(); ++i) {
        states.push_back(
            static_cast<std::uint16_t>((ids[t].get<std::int64_t>() * 31 + static_cast<std::int64_t>(t) + i) % 0x7000));
      }
    }
    put("hidden_states", "bfloat16", {1, ids.size(), contract_.aux_width()}, std::as_bytes(std::span(states)));
    for (const Json& passed : item["passthrough"]) {
      const auto data = passed["data"].get<std::vector<std::int64_t>>();
      put(passed["name"], "int64", passed["shape"], std::as_bytes(std::span(data)));
    }
    journal_[sample_id] = {generation, result};
    return result;
  }

  const std::string url_;
  const CaptureContract contract_;
  const Clock& clock_;
  std::unique_ptr<store::Arena> arena_;
  std::map<std::string, std::pair<std::uint32_t, Json>> journal_;
  std::vector<std::string> extra_keys_;
  std::int64_t captures_ = 0;
};

// A worker's connection to it.
class ScriptedConnection final : public CaptureServer {
 public:
  explicit ScriptedConnection(ScriptedServer& server) : server_(server) {}
  Result<http::ClientResponse> post(const std::string& target, const std::string& body, std::int64_t) override {
    return server_.post(target, body);
  }
  Result<http::ClientResponse> get(const std::string& target, std::int64_t) override { return server_.get(target); }

 private:
  ScriptedServer& server_;
};

}  // namespace levada::producer
