#include "recipe/launch_plan.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/hash.h"
#include "base/hex.h"

namespace levada::recipe {
namespace {

namespace fs = std::filesystem;

std::string text(std::int64_t number) { return std::to_string(number); }

std::string text(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", number);
  return buffer;
}

std::string absolute(const PlanContext& context, const std::string& path) {
  return (fs::path(context.folder) / path).lexically_normal().string();
}

std::string joined(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? "" : ",") + item;
  return list;
}

// A socket's path has at most 107 bytes; a control folder that lies deeper gets a name made from it.
std::string socket_path(const PlanContext& context, const FanoutRecipe& recipe, std::size_t index) {
  const std::string folder = absolute(context, recipe.disaggregated.control_dir);
  const std::string name = "capture-" + std::to_string(index) + ".sock";
  const std::string path = (fs::path(folder) / name).string();
  if (path.size() < 100) return path;
  return "/tmp/levada-" + hex64(hash64(std::as_bytes(std::span(folder)))) + "-" + name;
}

std::string log_path(const FanoutRecipe& recipe, const std::string& label) {
  return (fs::path(recipe.output_dir) / "logs" / (label + ".log")).string();
}

EnvEntry secret(const char* name, const std::string& value) { return {name, value, true}; }

void add(std::vector<std::string>& argv, const std::string& flag, const std::string& value) {
  argv.push_back(flag);
  argv.push_back(value);
}

// The target as a server that captures. What its own sections say replaces what SGLang's fields say.
std::vector<std::string> server_argv(const FanoutRecipe& recipe, const PlanContext& context, std::size_t index) {
  const CaptureServer& server = recipe.managed_local.capture_servers[index];
  const ModelSection& model = recipe.model;
  const WindowedFanoutSection& fanout = recipe.fanout;
  std::vector<std::string> argv{context.binary, "serve"};
  const auto add_unless_said = [&](const std::string& flag, const std::string& value) {
    const auto says = [&](const auto& own) { return own.first == flag; };
    if (std::none_of(recipe.server_flags.begin(), recipe.server_flags.end(), says)) add(argv, flag, value);
  };
  const auto add_if_set = [&](const std::string& flag, const std::optional<std::int64_t>& value) {
    if (value) add_unless_said(flag, text(*value));
  };
  add(argv, "--model-path", model.target_model_path);
  add(argv, "--device", recipe.on_cuda() ? "cuda" : "cpu");
  add_unless_said("--dtype", model.torch_dtype);
  add_if_set("--context-length", model.sglang_context_length);
  add_if_set("--max-running-requests", model.sglang_max_running_requests);
  add_if_set("--max-total-tokens", model.sglang_max_total_tokens);
  add_if_set("--page-size", model.sglang_page_size);
  add_unless_said("--mem-fraction-static", text(server.mem_fraction_static.value_or(model.sglang_mem_fraction_static)));
  if (recipe.levada.server_threads > 0) add(argv, "--threads", text(recipe.levada.server_threads));
  for (const auto& [flag, value] : recipe.server_flags) argv.push_back(flag + "=" + value);
  if (recipe.flywheel) {
    const std::string folder = absolute(context, recipe.flywheel_folder());
    add(argv, "--live-samples-dir", folder + "/spool");
    add(argv, "--live-samples-rate", text(recipe.flywheel->rate));
    add(argv, "--live-samples-bytes", text(recipe.flywheel->spool_bytes));
    add(argv, "--speculative-draft-room", folder + "/" + kDraftRoomFile);
  }
  argv.insert(argv.end(), server.extra_args.begin(), server.extra_args.end());
  add(argv, "--port", text(server.port));
  argv.push_back("--enable-spec-capture");
  add(argv, "--spec-capture-store-id", recipe.store_id());
  add(argv, "--spec-capture-max-sample-bytes", text(fanout.capture_max_sample_bytes));
  const std::int64_t arena = fanout.max_live_bytes + fanout.capture_reservation_bytes;
  add(argv, "--arena-bytes", text(recipe.levada.capture_arena_bytes.value_or(arena)));
  add(argv, "--store-tcp-url", "tcp://127.0.0.1:0");
  if (recipe.levada.transport == "ucx") add(argv, "--store-ucx-url", "ucx://127.0.0.1:0");
  const bool on_gpu = recipe.levada.transport == "nvlink";
  if (on_gpu) add(argv, "--arena-device", "cuda");
  add(argv, "--store-shm-url", (on_gpu ? "nvlink://" : "shm://") + socket_path(context, recipe, index));
  return argv;
}

Command service(const FanoutRecipe& recipe, const PlanContext& context, std::size_t index) {
  const CaptureServer& server = recipe.managed_local.capture_servers[index];
  Command command;
  command.label = "server-" + std::to_string(index);
  command.kind = RoleKind::kService;
  command.argv = server_argv(recipe, context, index);
  if (recipe.on_cuda()) command.env.push_back({"CUDA_VISIBLE_DEVICES", joined(server.cuda_visible_devices)});
  for (const std::string& entry : server.env) {
    const std::size_t equals = entry.find('=');
    command.env.push_back({entry.substr(0, equals), entry.substr(equals + 1)});
  }
  command.env.push_back(secret(kCaptureTokenEnv, context.capture_token));
  command.log_path = log_path(recipe, command.label);
  command.health_url = server_urls(recipe)[index] + "/health";
  command.startup_timeout_s = server.startup_timeout_s;
  return command;
}

std::vector<std::string> role_argv(const PlanContext& context, const char* role) {
  std::vector<std::string> argv{context.binary, role, context.recipe_path};
  for (const std::string& assignment : context.overrides) add(argv, "--set", assignment);
  if (context.registry_port != 0) {
    add(argv, "--set", "deployment.disaggregated.windowed_fanout.port=" + text(context.registry_port));
  }
  return argv;
}

Command consumer_command(const FanoutRecipe& recipe, const PlanContext& context, std::size_t index) {
  const Consumer& consumer = recipe.consumers[index];
  Command command;
  command.label = consumer.consumer_id;
  command.kind = RoleKind::kConsumer;
  command.argv = role_argv(context, "train");
  add(command.argv, "--consumer-id", consumer.consumer_id);
  command.argv.push_back(
      "--takeover");  // the launcher starts one process per consumer: an older session is a dead one's
  command.env.push_back({kConsumerIdEnv, consumer.consumer_id});
  if (recipe.on_cuda()) {
    const auto& own = consumer.cuda_visible_device;
    command.env.push_back(
        {"CUDA_VISIBLE_DEVICES", own ? text(*own) : recipe.managed_local.trainer_cuda_visible_devices[index]});
  }
  command.env.push_back(secret(kCaptureTokenEnv, context.capture_token));
  command.env.push_back(secret(kRegistryTokenEnv, context.registry_token));
  command.env.push_back({kRegistryAdminTokenEnv, std::nullopt});
  command.log_path = log_path(recipe, command.label);
  return command;
}

Command producer_command(const FanoutRecipe& recipe, const PlanContext& context) {
  Command command;
  command.label = "producer";
  command.kind = RoleKind::kProducer;
  command.argv = role_argv(context, "produce");
  command.first_argv = {"--retry-failed"};
  if (recipe.managed) command.first_argv.push_back("--new-servers");
  if (recipe.on_cuda()) command.env.push_back({"CUDA_VISIBLE_DEVICES", ""});  // it has no use for a GPU
  command.env.push_back(secret(kCaptureTokenEnv, context.capture_token));
  command.env.push_back(secret(kRegistryTokenEnv, context.registry_token));
  command.env.push_back(secret(kRegistryAdminTokenEnv, context.registry_admin_token));
  command.log_path = log_path(recipe, command.label);
  return command;
}

// In the producer's place: what ends it ends the run.
Command flywheel_command(const FanoutRecipe& recipe, const PlanContext& context) {
  Command command;
  command.label = "flywheel";
  command.kind = RoleKind::kProducer;
  command.argv = {context.binary, "flywheel", "run", context.recipe_path};
  for (const std::string& assignment : context.overrides) add(command.argv, "--set", assignment);
  command.env.push_back(secret(kCaptureTokenEnv, context.capture_token));
  command.log_path = log_path(recipe, command.label);
  return command;
}

}  // namespace

std::vector<std::string> server_urls(const FanoutRecipe& recipe) {
  if (!recipe.managed) return recipe.disaggregated.server_urls;
  std::vector<std::string> urls;
  for (const CaptureServer& server : recipe.managed_local.capture_servers) {
    urls.push_back("http://127.0.0.1:" + text(server.port));
  }
  return urls;
}

LaunchPlan make_plan(const FanoutRecipe& recipe, const PlanContext& context) {
  LaunchPlan plan;
  plan.run_id = recipe.run_id;
  plan.output_dir = recipe.output_dir;
  plan.control_dir = recipe.disaggregated.control_dir;
  const std::size_t servers = recipe.managed ? recipe.managed_local.capture_servers.size() : 0;
  for (std::size_t i = 0; i < servers; ++i) {
    plan.services.push_back(service(recipe, context, i));
    plan.ports.emplace_back("127.0.0.1", recipe.managed_local.capture_servers[i].port);
    plan.sockets.push_back(socket_path(context, recipe, i));
  }
  if (recipe.flywheel) {
    plan.commands.push_back(flywheel_command(recipe, context));
  } else {
    for (std::size_t i = 0; i < recipe.consumers.size(); ++i) {
      plan.commands.push_back(consumer_command(recipe, context, i));
    }
    plan.commands.push_back(producer_command(recipe, context));
    const std::int64_t port = context.registry_port != 0 ? context.registry_port : recipe.fanout.port;
    plan.ports.emplace_back(recipe.fanout.bind, port);
  }
  plan.shutdown_grace_s =
      recipe.managed ? recipe.managed_local.shutdown_grace_s : recipe.disaggregated.shutdown_grace_s;
  plan.abort_on_consumer_failure = recipe.fanout.on_consumer_failure == "abort_all";
  plan.max_restarts = recipe.levada.max_restarts;
  for (const std::string& path : recipe.unused) plan.notes.push_back(path + " has no effect in levada");
  return plan;
}

}  // namespace levada::recipe
