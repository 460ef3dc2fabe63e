#include "up/draft_client.h"

#include <nlohmann/json.hpp>

namespace levada::up {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kTimeout{10};  // a large draft takes its time to read

// The server's own words where they are of the known form.
Status failure_of(const http::ClientResponse& response) {
  const Json body = Json::parse(response.body, nullptr, false);
  const bool known =
      body.is_object() && body.contains("error") && body["error"].is_object() && body["error"].contains("message");
  const Json message = known ? body["error"]["message"] : Json();
  const bool asker = response.status >= 400 && response.status < 500;
  return Status(asker ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
                "HTTP " + std::to_string(response.status) + ": " +
                    (message.is_string() ? message.get<std::string>() : std::string("an answer without a message")));
}

std::optional<ServedDraft> draft_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  ServedDraft draft;
  draft.name = json.at("name").get<std::string>();
  draft.path = json.at("path").get<std::string>();
  draft.version = json.at("version").get<std::int64_t>();
  draft.block_size = json.at("block_size").get<std::int64_t>();
  draft.layers = json.at("layers").get<std::int64_t>();
  draft.bytes = json.at("bytes").get<std::int64_t>();
  const Json& given = json.at("speculation");
  draft.steps = given.at("steps").get<std::int64_t>();
  draft.drafts = given.at("drafts").get<std::int64_t>();
  draft.accepted = given.at("accepted").get<std::int64_t>();
  if (!given.at("accept_length").is_null()) draft.accept_length = given.at("accept_length").get<double>();
  return draft;
}

Status not_ours(const char* what) {
  return data_loss(std::string("the server does not answer as levada does: ") + what);
}

}  // namespace

Result<std::string> DraftClient::ask(std::string method, std::string target, std::string body) {
  http::ClientRequest request;
  request.method = std::move(method);
  request.target = std::move(target);
  request.body = std::move(body);
  request.timeout = kTimeout;
  request.stop = stop_;
  request.headers["Content-Type"] = "application/json";
  request.headers["X-Levada-No-Capture"] = "1";
  if (!key_.empty()) request.headers["Authorization"] = "Bearer " + key_;
  LEVADA_ASSIGN_OR_RETURN(http::ClientResponse response, client_.request(request));
  if (response.status != 200) return failure_of(response);
  return std::move(response.body);
}

Result<ServedDrafts> DraftClient::drafts(std::string method, std::string target, std::string body) {
  ServedDrafts served;
  LEVADA_ASSIGN_OR_RETURN(served.json, ask(std::move(method), std::move(target), std::move(body)));
  try {
    const Json json = Json::parse(served.json);
    served.serving = draft_of(json.at("serving"));
    served.previous = draft_of(json.at("previous"));
  } catch (const Json::exception& error) {
    return not_ours(error.what());
  }
  return served;
}

Result<ServedDrafts> DraftClient::load(const std::string& path, const std::string& name) {
  Json body = {{"path", path}};
  if (!name.empty()) body["name"] = name;
  return drafts("POST", "/drafts", body.dump(-1, ' ', false, Json::error_handler_t::replace));
}
Result<ServedDrafts> DraftClient::unload() { return drafts("DELETE", "/drafts"); }
Result<ServedDrafts> DraftClient::roll_back() { return drafts("POST", "/drafts/rollback"); }
Result<ServedDrafts> DraftClient::list() { return drafts("GET", "/drafts"); }

Result<DraftedAnswer> DraftClient::answer(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens) {
  const Json body = {
      {"input_ids", prompt},
      {"sampling_params", {{"temperature", 0}, {"max_new_tokens", max_tokens}, {"spec_full_blocks", true}}}};
  LEVADA_ASSIGN_OR_RETURN(const std::string text, ask("POST", "/generate", body.dump()));
  try {
    const Json meta = Json::parse(text).at("meta_info");
    DraftedAnswer answer;
    answer.tokens = meta.at("completion_tokens").get<std::int64_t>();
    answer.seconds = meta.at("e2e_latency").get<double>();
    answer.steps = meta.value("spec_verify_ct", std::int64_t{0});
    answer.accepted = meta.value("spec_accepted_drafts", std::int64_t{0});
    return answer;
  } catch (const Json::exception& error) {
    return not_ours(error.what());
  }
}

}  // namespace levada::up
