// `levada train RECIPE --consumer-id X`: one consumer of a run, as one process.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stop_token>

#include "cli/fanout_setup.h"
#include "cli/model_locator.h"
#include "cli/run_setup.h"
#include "cli/signal_watch.h"
#include "train/peer_run.h"
#include "train/rank_processes.h"
#include "up/events.h"

namespace levada::cli {
namespace {

struct Options {
  std::string consumer_id;
  bool takeover = false;
};

void describe(OptionTable& table, Options& options) {
  table.begin_room("train");
  table.add("consumer_id", &options.consumer_id, "which of the recipe's consumers; needed if there are several");
  table.add("takeover", &options.takeover, "end an older session of the same consumer");
}

void tell(const up::Event& event) {
  std::printf("%s\n", up::to_line(event).c_str());
  std::fflush(stdout);
}

Result<const recipe::Consumer*> chosen(const recipe::FanoutRecipe& recipe, std::string id) {
  if (id.empty()) {
    const char* from_launcher = std::getenv(recipe::kConsumerIdEnv);
    if (from_launcher != nullptr) id = from_launcher;
  }
  if (id.empty() && recipe.consumers.size() == 1) return &recipe.consumers[0];
  const recipe::Consumer* consumer = recipe.find_consumer(id);
  if (consumer != nullptr) return consumer;
  std::string known;
  for (const recipe::Consumer& one : recipe.consumers) known += (known.empty() ? "" : ", ") + one.consumer_id;
  return invalid_argument("must be one of " + known + ", got \"" + id + "\"", "consumer_id");
}

Result<train::ConsumerRunRequest> request_for(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer,
                                              bool takeover) {
  train::ConsumerRunRequest request;
  request.trainer = trainer_options_of(recipe, consumer);
  LEVADA_ASSIGN_OR_RETURN(request.draft, draft_config_of(recipe, consumer));
  request.consumer = consumer_options_of(recipe, consumer);
  request.consumer.takeover = takeover;
  request.window = window_of(recipe, consumer);
  LEVADA_ASSIGN_OR_RETURN(request.target_model, locate_model(recipe.model.target_model_path));
  if (consumer.model.draft_checkpoint_path) request.init_from = *consumer.model.draft_checkpoint_path;
  request.export_dir = std::filesystem::path(request.trainer.output_dir) / "draft";
  request.recipe_hash = training_hash(request.trainer, request.draft);
  LEVADA_ASSIGN_OR_RETURN(const Tokens tokens, tokens_of_a_role(recipe));
  request.registry_token = tokens.registry;
  request.store_token = tokens.capture;
  return request;
}

// As rank 0.
Status train_consumer(const train::ConsumerRunRequest& request, std::stop_token stop) {
  const std::string& id = request.consumer.consumer_id;
  const auto tell_checkpoint = [&](std::int64_t step, const std::filesystem::path& folder) {
    tell(up::CheckpointEvent{id, step, folder.string()});
  };
  train::ConsumerEvents events;
  events.on_step = [&](const train::StepReport& report, std::int64_t cursor) {
    tell(up::StepEvent{id, report.step, cursor, report.metrics.loss(), report.metrics.tau(), report.learning_rate});
  };
  events.on_checkpoint = tell_checkpoint;
  events.on_state = [](const std::string& text) { tell(up::StateEvent{text}); };
  LEVADA_ASSIGN_OR_RETURN(const train::ConsumerSummary summary, train::run_consumer(request, stop, events));
  // Of a consumer that was complete already, nothing else would tell.
  if (!summary.checkpoint.empty()) tell_checkpoint(summary.step, summary.checkpoint);
  return {};
}

// In as many processes as the recipe says.
Status train_in_ranks(const recipe::FanoutRecipe& recipe, const Options& options) {
  LEVADA_ASSIGN_OR_RETURN(const recipe::Consumer* consumer, chosen(recipe, options.consumer_id));
  LEVADA_ASSIGN_OR_RETURN(train::ConsumerRunRequest request, request_for(recipe, *consumer, options.takeover));
  LEVADA_ASSIGN_OR_RETURN(train::RankProcesses ranks, train::RankProcesses::start(consumer->nproc_per_node));
  if (consumer->nproc_per_node > 1) request.ranks = &ranks.collective();
  if (ranks.rank() > 0) return train::run_peer(request);
  SignalWatch signals;  // its thread may exist only once the ranks are forked
  std::stop_source stop;
  signals.on_stop([&] { stop.request_stop(); });
  const Status status = train_consumer(request, stop.get_token());
  signals.on_stop({});
  return status;
}

}  // namespace

int train_command(Words words) {
  Options options;
  OptionTable table;
  describe(table, options);
  const Result<RecipeCommand> command = read_recipe_command(words, table);
  if (!command.ok()) return report(command.status());
  if (command->line.help) {
    print_usage(
        "train RECIPE [--consumer-id X] [--set section.name=value]...\n"
        "trains one draft on a run's samples; `levada up` starts it",
        table);
    return kExitOk;
  }
  const Status status = train_in_ranks(command->recipe, options);
  return status.ok() ? kExitOk : report(status);
}

}  // namespace levada::cli
