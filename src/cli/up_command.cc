// Composes one run: recipe, folder, plan, supervisor, view; then says how it ended.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/durable_file.h"
#include "cli/fanout_setup.h"
#include "cli/run_setup.h"
#include "cli/run_terms.h"
#include "http/client.h"
#include "registry/registry_client.h"
#include "up/run_folder.h"
#include "up/supervisor.h"

namespace levada::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string summary;
  bool exit_when_done = false;
  bool plain = false;
  bool fresh = false;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("up");
  table.add("summary", &options.summary, "write the result to this file as one JSON object");
  table.add("exit_when_done", &options.exit_when_done, "end with the training instead of serving on");
  table.add("plain", &options.plain, "plain lines even on a terminal");
  table.add("fresh", &options.fresh, "forget an earlier run of this recipe: its registry, logs and checkpoints");
}

// One GET of "http://host:port/path".
bool is_healthy(const std::string& url) {
  const std::size_t host = url.find("://") + 3, colon = url.find(':', host), slash = url.find('/', colon);
  http::Client client(url.substr(host, colon - host), static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1))));
  http::ClientRequest request;
  request.target = url.substr(slash);
  request.timeout = std::chrono::milliseconds(250);
  const auto response = client.request(request);
  return response.ok() && response->status / 100 == 2;
}

void ask_to_drain(const std::string& host, std::int64_t port, const std::string& token) {
  const SystemClock clock;
  registry::ClientOptions options{.host = host, .port = static_cast<std::uint16_t>(port), .token = token};
  options.patience = std::chrono::seconds(2);
  options.answer_timeout = std::chrono::seconds(2);
  registry::RegistryClient client(options, {}, clock, [](std::chrono::milliseconds) {});
  // It may have ended by itself meanwhile; if not, the supervisor's patience ends it.
  static_cast<void>(client.call(fanout::DrainRequest{}));
}

up::RunState first_state(const recipe::FanoutRecipe& recipe, const recipe::LaunchPlan& plan, bool train) {
  up::RunState state(recipe.run_id, recipe.data.max_prompts * recipe.training.num_epochs,
                     {recipe.fanout.max_live_refs, recipe.fanout.max_live_bytes});
  for (const recipe::Command& command : plan.services) state.add_role(command.label, command.kind);
  if (!train) return state;
  for (const recipe::Command& command : plan.commands) state.add_role(command.label, command.kind);
  if (recipe.flywheel) return state;  // its trainers are those of its rounds
  for (const recipe::Consumer& consumer : recipe.consumers) {
    state.add_trainer(consumer.consumer_id, recipe.steps_of(consumer));
  }
  return state;
}

// The server makes room for the largest draft of the recipe before there is any.
Status write_draft_room(const recipe::FanoutRecipe& recipe) {
  std::optional<model::DraftConfig> room;
  for (const recipe::Consumer& consumer : recipe.consumers) {
    LEVADA_ASSIGN_OR_RETURN(model::DraftConfig draft, draft_config_of(recipe, consumer));
    if (room) draft.block_size = std::max(draft.block_size, room->block_size);
    if (room && room->parameters() > draft.parameters()) {
      room->block_size = draft.block_size;
    } else {
      room = std::move(draft);
    }
  }
  const fs::path folder(recipe.flywheel_folder());
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string text = model::draft_config_json(*room);
  const std::string_view whole = text;
  return replace_file(folder / recipe::kDraftRoomFile, std::span(&whole, 1));
}

Status forget_earlier(const recipe::FanoutRecipe& recipe, const up::RunFolder& folder) {
  LEVADA_RETURN_IF_ERROR(folder.clear());
  std::error_code error;
  const fs::path output(recipe.output_dir);
  fs::remove_all(output / "logs", error);
  if (recipe.flywheel) fs::remove_all(recipe.flywheel_folder(), error);
  for (const recipe::Consumer& consumer : recipe.consumers) {
    fs::remove_all(output / consumer.consumer_id, error);
    if (error) return unavailable("cannot delete " + (output / consumer.consumer_id).string() + ": " + error.message());
  }
  return {};
}

Status write_file(const std::string& file, const std::string& text) {
  if (file.empty()) return {};
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  return out.flush() ? Status() : unavailable("cannot write " + file);
}

// Ports that roles will listen on; a registry port of 0 becomes one that is free now.
Status check_ports(const RecipeCommand& command, bool train, recipe::PlanContext& context) {
  for (const recipe::CaptureServer& server : command.recipe.managed_local.capture_servers) {
    LEVADA_RETURN_IF_ERROR(up::bindable_port("127.0.0.1", server.port).status());
  }
  if (!train) return {};
  LEVADA_ASSIGN_OR_RETURN(context.registry_port,
                          up::bindable_port(command.recipe.fanout.bind, command.recipe.fanout.port));
  return {};
}

class Run {
 public:
  Run(const RecipeCommand& command, const Options& options, up::RunFolder folder)
      : command_(command), options_(options), folder_(std::move(folder)) {}

  Result<int> run(up::StopSignals& signals) {
    if (options_.fresh) {
      LEVADA_RETURN_IF_ERROR(forget_earlier(command_.recipe, folder_));
    }
    const bool flywheel = command_.recipe.flywheel.has_value();
    LEVADA_RETURN_IF_ERROR(flywheel ? write_draft_room(command_.recipe) : agree());
    const auto& earlier = folder_.earlier();
    const bool train = options_.fresh || flywheel || !earlier || earlier->phase != "completed";
    if (!train) {
      std::printf("this run was completed earlier (levada up --fresh trains anew):\n%s", earlier->text.c_str());
      std::fflush(stdout);
      LEVADA_RETURN_IF_ERROR(write_file(options_.summary, earlier->summary));
      if (options_.exit_when_done || !command_.recipe.managed) return kExitOk;
    }
    const Tokens tokens = make_tokens(command_.recipe);
    recipe::PlanContext context = plan_context(command_, tokens);
    LEVADA_RETURN_IF_ERROR(check_ports(command_, train, context));
    const recipe::LaunchPlan plan = recipe::make_plan(command_.recipe, context);
    for (const std::string& note : plan.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
    up::RunState state = first_state(command_.recipe, plan, train);
    const int signal = supervise(plan, context, train, signals, state);
    return train ? finish(state, signal) : exit_code(state.failure.empty(), signal);
  }

 private:
  Status agree() const {
    LEVADA_ASSIGN_OR_RETURN(const RunTerms terms, run_terms_of(command_.recipe));
    return agree_on_terms(command_.recipe, terms);
  }

  int supervise(const recipe::LaunchPlan& plan, const recipe::PlanContext& context, bool train,
                up::StopSignals& signals, up::RunState& state) {
    const std::unique_ptr<up::View> view =
        isatty(STDOUT_FILENO) == 1 && !options_.plain ? up::make_terminal_view(stdout) : up::make_plain_view(stdout);
    up::SupervisorHooks hooks;
    hooks.healthy = is_healthy;
    hooks.drain = [&] {
      ask_to_drain(command_.recipe.fanout.bind, context.registry_port, context.registry_admin_token);
    };
    if (train) {
      hooks.changed = [this](const up::RunState& now) { keep(now); };
      hooks.done = [&](const up::RunState& now) {
        view->finish(now);
        if (!command_.recipe.flywheel) conclude(now, 0);
      };
    }
    // What a capture cut short may still write is removed only once its call has timed out; then come the tries.
    const recipe::WindowedFanoutSection& fanout = command_.recipe.fanout;
    const up::SupervisorOptions options{
        .train = train,
        .exit_when_done = options_.exit_when_done,
        .patience_s =
            60 + fanout.capture_timeout_s + static_cast<double>(fanout.drain_tries) * fanout.drain_interval_s};
    const SystemClock clock;
    up::Supervisor supervisor(plan, options, std::move(hooks), clock, signals, *view, state);
    const int signal = supervisor.run();
    view->finish(state);
    return signal;
  }

  // The status file is for others to look at: a run does not end because it cannot be written.
  void keep(const up::RunState& state) const {
    const Status written = folder_.write_status(state);
    if (!written.ok()) std::fputs(failure_line(written).c_str(), stderr);
  }

  void conclude(up::RunState state, int signal) const {
    state.phase = state.ok() ? "completed" : signal != 0 ? "stopped" : "failed";
    keep(state);
    const Status written = write_file(options_.summary, up::summary_json(state));
    if (!written.ok()) std::fputs(failure_line(written).c_str(), stderr);
    std::printf("\n%s\n", up::gate_table(state).c_str());
    std::fflush(stdout);
  }

  int finish(up::RunState& state, int signal) const {
    const bool served = state.phase == "serving";
    // A flywheel's result is its history; here only what failed counts.
    if (command_.recipe.flywheel) {
      state.phase = state.failure.empty() ? signal != 0 ? "stopped" : "completed" : "failed";
      keep(state);
      return exit_code(state.failure.empty(), signal);
    }
    if (signal != 0 && !served && state.failure.empty()) state.failure = "stopped by signal " + std::to_string(signal);
    // A run whose training was concluded before is told again only if its end was not clean.
    if (!served || !state.leftovers.empty()) conclude(state, signal);
    return exit_code(state.ok(), signal);
  }

  static int exit_code(bool ok, int signal) { return signal != 0 ? 128 + signal : ok ? kExitOk : kExitFailure; }

  const RecipeCommand& command_;
  const Options& options_;
  const up::RunFolder folder_;
};

}  // namespace

int up_command(Words words) {
  Options options;
  OptionTable table;
  describe(table, options);
  const Result<RecipeCommand> command = read_recipe_command(words, table);
  if (!command.ok()) return report(command.status());
  if (command->line.help) {
    print_usage("up RECIPE [--set section.name=value]... [flags]\nruns a recipe: servers, registry, producer, trainers",
                table);
    return kExitOk;
  }
  const Status refused = check_before_start(command->recipe);
  if (!refused.ok()) return report(refused);
  up::StopSignals signals;
  Result<up::RunFolder> folder = up::RunFolder::open(command->recipe.disaggregated.control_dir);
  if (!folder.ok()) return report(folder.status());
  const Result<int> code = Run(*command, options, std::move(*folder)).run(signals);
  return code.ok() ? *code : report(code.status());
}

}  // namespace levada::cli
