// What: LaunchPlan, which processes a fan-out run consists of: command lines, environments, readiness, order.
// Owner: a value; `levada plan` prints it, `levada up` (up/supervisor.h) runs it.
// Thread: any.
// Invariant: make_plan() is a pure function: the same recipe and context give the same plan, byte for byte. What is
// printed carries no secret.
// Format: docs/recipes.md; field names are SpecForge's.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recipe/fanout_recipe.h"

namespace levada::recipe {

struct EnvEntry {
  std::string name;
  std::optional<std::string> value;  // none: unset for the child
  bool secret = false;
};

enum class RoleKind { kService, kConsumer, kProducer };

struct Command {
  std::string label;  // of consumers their id, then "producer"
  RoleKind kind = RoleKind::kService;
  std::vector<std::string> argv;
  std::vector<std::string> first_argv;  // more words for the first start of a launch, not for a restart
  std::vector<EnvEntry> env;            // on top of the launcher's own
  std::string log_path;
  std::string health_url;  // a service is ready once GET answers 2xx; empty: at once
  double startup_timeout_s = 0;
};

struct LaunchPlan {
  std::vector<Command> services;
  std::vector<Command> commands;
  std::string run_id, output_dir, control_dir;
  std::vector<std::pair<std::string, std::int64_t>> ports;  // host, port: must be free before the start
  std::vector<std::string> sockets;                         // files that must not outlive the run
  double shutdown_grace_s = 30;
  bool abort_on_consumer_failure = false;
  std::int64_t max_restarts = 0;
  std::vector<std::string> notes;
};

// What a plan depends on besides the recipe.
struct PlanContext {
  std::string binary = "levada";
  std::string recipe_path;
  std::vector<std::string> overrides;
  std::string folder;              // the current one, absolute
  std::int64_t registry_port = 0;  // 0: the recipe's
  std::string capture_token, registry_token, registry_admin_token;
};

inline constexpr const char* kCaptureTokenEnv = "SGLANG_SPEC_CAPTURE_TOKEN";
inline constexpr const char* kRegistryTokenEnv = "LEVADA_REGISTRY_TOKEN";
inline constexpr const char* kRegistryAdminTokenEnv = "LEVADA_REGISTRY_ADMIN_TOKEN";
// In the flywheel's folder: the config.json of the largest draft that it trains. `up` writes it before the server starts.
inline constexpr const char* kDraftRoomFile = "draft-room.json";
inline constexpr const char* kConsumerIdEnv = "SPECFORGE_FANOUT_CONSUMER_ID";

LaunchPlan make_plan(const FanoutRecipe& recipe, const PlanContext& context);

// One JSON object, indented. Secrets are "***": tokens, values of flags and `--set`s named like keys, userinfo of URLs.
std::string plan_json(const LaunchPlan& plan);

// The capture servers' base URLs, managed or external.
std::vector<std::string> server_urls(const FanoutRecipe& recipe);

}  // namespace levada::recipe
