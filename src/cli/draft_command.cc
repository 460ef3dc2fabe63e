// `levada draft load|unload|list|rollback`: the drafts of a running server, over its HTTP API.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "http/client.h"
#include "http/url.h"
#include "recipe/command_line.h"

namespace levada::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string url = "http://127.0.0.1:30000";
  std::string api_key;
  std::string name;
  bool json = false;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("draft");
  table.add("url", &options.url, "the server");
  table.add("api_key", &options.api_key, "its administrator's key, if it has one");
  table.add("name", &options.name, "load: what the draft is called; default: its folder's name");
  table.add("json", &options.json, "print the server's answer as it is");
}

constexpr const char* kUsage = "usage: levada draft load DIR [--name NAME] | unload | list | rollback  [--url URL]\n";

Result<http::ClientRequest> request_for(const std::vector<std::string>& words, const Options& options) {
  const std::string verb = words.empty() ? "" : words[0];
  http::ClientRequest request;
  request.target = "/drafts";
  request.timeout = std::chrono::minutes(10);  // a large draft takes its time to read
  if (!options.api_key.empty()) request.headers["Authorization"] = "Bearer " + options.api_key;
  const std::size_t wanted = verb == "load" ? 2 : 1;
  if (words.size() != wanted) return invalid_argument(std::string("give one of load DIR, unload, list, rollback"));
  if (verb == "list") return request;
  if (verb == "unload") {
    request.method = "DELETE";
    return request;
  }
  request.method = "POST";
  if (verb == "rollback") {
    request.target = "/drafts/rollback";
    return request;
  }
  if (verb != "load")
    return invalid_argument("there is no 'draft " + verb + "'; give load DIR, unload, list or rollback");
  // The server may run in another folder.
  Json body = {{"path", std::filesystem::absolute(words[1]).string()}};
  if (!options.name.empty()) body["name"] = options.name;
  request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  request.headers["Content-Type"] = "application/json";
  return request;
}

// The server's own words where they are of the known form.
Status failure_of(const http::ClientResponse& response) {
  const Json body = Json::parse(response.body, nullptr, false);
  const bool known = body.is_object() && body.contains("error") && body["error"].is_object() &&
                     body["error"].value("message", Json()).is_string();
  const std::string what = known ? body["error"]["message"].get<std::string>() : "an answer without a message";
  const bool asker = response.status >= 400 && response.status < 500;
  return Status(asker ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
                "HTTP " + std::to_string(response.status) + ": " + what);
}

void print_draft(const char* role, const Json& draft) {
  if (!draft.is_object()) return void(std::printf("%-9s none\n", role));
  const Json& given = draft["speculation"];
  std::printf("%-9s %s (version %lld, block %lld, %lld layers, %.1f MiB) from %s\n", role,
              draft["name"].get<std::string>().c_str(), draft["version"].get<long long>(),
              draft["block_size"].get<long long>(), draft["layers"].get<long long>(),
              draft["bytes"].get<double>() / (1 << 20), draft["path"].get<std::string>().c_str());
  if (given["accept_length"].is_null()) return void(std::printf("          no steps yet\n"));
  std::printf("          %.3f tokens a step over %lld steps; %lld of %lld drafts accepted\n",
              given["accept_length"].get<double>(), given["steps"].get<long long>(), given["accepted"].get<long long>(),
              given["drafts"].get<long long>());
}

Status run(const std::vector<std::string>& words, const Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const http::HttpUrl url, http::parse_http_url(options.url));
  LEVADA_ASSIGN_OR_RETURN(const http::ClientRequest request, request_for(words, options));
  http::Client client(url.host, url.port);
  LEVADA_ASSIGN_OR_RETURN(const http::ClientResponse response, client.request(request));
  if (response.status != 200) return failure_of(response);
  if (options.json) {
    std::printf("%s\n", response.body.c_str());
    return {};
  }
  try {  // another program may listen there
    const Json body = Json::parse(response.body);
    print_draft("serving", body.at("serving"));
    print_draft("previous", body.at("previous"));
  } catch (const Json::exception&) {
    return data_loss(options.url + " answers, but not as levada does");
  }
  return {};
}

}  // namespace

int draft_command(Words words) {
  Options options;
  OptionTable table;
  describe(table, options);
  const auto line = recipe::parse_command_line(words, table, recipe::Overrides::kCollect);
  if (!line.ok()) return report(line.status());
  if (line->help) {
    std::printf("%s%s", kUsage, recipe::print_help(table).c_str());
    return kExitOk;
  }
  const Status status = run(line->positionals, options);
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
