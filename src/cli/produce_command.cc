// `levada produce RECIPE`: the registry and the producer of a run, as one process.
#include <cstdio>
#include <stop_token>

#include "cli/fanout_setup.h"
#include "cli/model_locator.h"
#include "cli/run_setup.h"
#include "cli/signal_watch.h"
#include "producer/producer_run.h"
#include "up/events.h"

namespace levada::cli {
namespace {

void tell(const up::Event& event) {
  std::printf("%s\n", up::to_line(event).c_str());
  std::fflush(stdout);
}

up::SnapshotEvent event_of(const fanout::SnapshotReply& snapshot) {
  up::SnapshotEvent event;
  event.status = to_string(snapshot.status);
  event.fail_reason = snapshot.fail_reason;
  event.total_samples = snapshot.total_samples;
  event.drained = snapshot.drained;
  for (const fanout::ConsumerSnapshot& consumer : snapshot.consumers) {
    event.consumers.push_back({.id = consumer.consumer_id,
                               .state = std::string(to_string(consumer.state)),
                               .failure = consumer.failure,
                               .cursor = consumer.cursor,
                               .step = consumer.step,
                               .lag = consumer.lag});
  }
  event.entries = snapshot.entries;
  event.counters = snapshot.counters;
  event.stuck = snapshot.stuck;
  return event;
}

// Where the target's tokenizer lies on this machine; empty if the target is elsewhere, which pre-tokenized prompts allow.
std::filesystem::path tokenizer_of(const std::string& target) {
  const auto model = locate_model(target);
  if (!model.ok()) return {};
  const auto tokenizer = locate_tokenizer(*model, "");
  return tokenizer.ok() ? *tokenizer : std::filesystem::path();
}

struct Options {
  bool new_servers = false;
  bool retry_failed = false;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("produce");
  table.add("new_servers", &options.new_servers,
            "no capture server of an earlier start lives: what those may have written late needs no waiting for");
  table.add("retry_failed", &options.retry_failed, "consumers that failed at an earlier start get another chance");
}

Status produce(const recipe::FanoutRecipe& recipe, const Options& options, std::stop_token stop) {
  producer::RunRequest request;
  LEVADA_ASSIGN_OR_RETURN(request.options, producer_options_of(recipe));
  request.run = run_config_of(recipe);
  request.run.servers_are_new = options.new_servers;
  request.run.retry_failed = options.retry_failed;
  request.tokenizer = tokenizer_of(recipe.model.target_model_path);
  LEVADA_ASSIGN_OR_RETURN(const Tokens tokens, tokens_of_a_role(recipe));
  request.capture_token = tokens.capture;
  request.registry_token = tokens.registry;
  request.registry_admin_token = tokens.registry_admin;
  request.registry_host = recipe.fanout.bind;
  request.registry_port = static_cast<std::uint16_t>(recipe.fanout.port);
  request.on_state = [](const std::string& text) { tell(up::StateEvent{text}); };
  const auto on_progress = [](const fanout::SnapshotReply& snapshot) { tell(event_of(snapshot)); };
  LEVADA_ASSIGN_OR_RETURN(const fanout::SnapshotReply last, producer::run_producer(request, stop, on_progress));
  tell(event_of(last));
  return {};
}

}  // namespace

int produce_command(Words words) {
  SignalWatch signals;
  Options options;
  OptionTable table;
  describe(table, options);
  const Result<RecipeCommand> command = read_recipe_command(words, table);
  if (!command.ok()) return report(command.status());
  if (command->line.help) {
    print_usage("produce RECIPE [--set section.name=value]...\nhosts the registry and captures; `levada up` starts it",
                table);
    return kExitOk;
  }
  std::stop_source stop;
  signals.on_stop([&] { stop.request_stop(); });
  const Status status = produce(command->recipe, options, stop.get_token());
  signals.on_stop({});
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
