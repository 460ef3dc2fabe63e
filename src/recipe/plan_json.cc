// How a plan is printed: SpecForge's field names, a fixed order, no secrets.
#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "recipe/launch_plan.h"

namespace levada::recipe {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHidden = "***";

bool names_a_secret(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array<std::string_view, 8> kWords = {"api_key", "api-key", "wandb_key", "swanlab_key",
                                                      "token",   "secret",  "password",  "admin-key"};
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    const std::size_t found = name.rfind(word);
    if (found == std::string_view::npos) return false;
    // "max_total_tokens" and "mask_token_id" count tokens; "auth_token_env" names a variable.
    return word != "token" || found + word.size() == name.size();
  });
}

// "http://user:pass@host" -> "http://***@host"
std::string without_userinfo(const std::string& word) {
  const std::size_t scheme = word.find("://");
  if (scheme == std::string::npos) return word;
  const std::size_t begin = scheme + 3, at = word.find('@', begin), slash = word.find('/', begin);
  if (at == std::string::npos || (slash != std::string::npos && slash < at)) return word;
  return word.substr(0, begin) + kHidden + word.substr(at);
}

Json printed_argv(const std::vector<std::string>& argv) {
  Json words = Json::array();
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const bool value_of_secret = i > 0 && argv[i - 1].starts_with("--") && argv[i - 1].find('=') == std::string::npos &&
                                 names_a_secret(argv[i - 1]);
    const std::size_t equals = argv[i].find('=');
    if (value_of_secret) {
      words.push_back(kHidden);
    } else if (equals != std::string::npos && names_a_secret(argv[i].substr(0, equals))) {
      words.push_back(argv[i].substr(0, equals + 1) + kHidden);
    } else {
      words.push_back(without_userinfo(argv[i]));
    }
  }
  return words;
}

Json printed_env(const std::vector<EnvEntry>& env) {
  Json values = Json::object();
  for (const EnvEntry& entry : env) {
    const bool hidden = entry.secret || names_a_secret(entry.name);
    values[entry.name] = !entry.value ? Json(nullptr) : Json(hidden ? std::string(kHidden) : *entry.value);
  }
  return values;
}

Json printed_command(const Command& command) {
  return {{"label", command.label},
          {"argv", printed_argv(command.argv)},
          {"env", printed_env(command.env)},
          {"log_path", command.log_path}};
}

Json printed_service(const Command& command) {
  return {
      {"command", {{"label", command.label}, {"argv", printed_argv(command.argv)}, {"env", printed_env(command.env)}}},
      {"readiness", {{"kind", "http"}, {"url", command.health_url}, {"timeout_s", command.startup_timeout_s}}},
      {"log_path", command.log_path},
      {"phase", 1}};
}

}  // namespace

std::string plan_json(const LaunchPlan& plan) {
  Json json = {
      {"kind", plan.services.empty() ? "supervisor" : "managed_supervisor"}, {"role", "auto"}, {"run_id", plan.run_id}};
  json["commands"] = Json::array();
  for (const Command& command : plan.commands) json["commands"].push_back(printed_command(command));
  json["worker_env"] = Json::object();
  json["services"] = Json::array();
  for (const Command& command : plan.services) json["services"].push_back(printed_service(command));
  json["managed_root"] = plan.control_dir;
  json["managed_ports"] = Json::array();
  for (const auto& [host, port] : plan.ports) json["managed_ports"].push_back(port);
  json["shutdown_grace_s"] = plan.shutdown_grace_s;
  json["on_consumer_failure"] = plan.abort_on_consumer_failure ? "abort_all" : "continue";
  json["max_restarts"] = plan.max_restarts;
  json["notes"] = plan.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace levada::recipe
