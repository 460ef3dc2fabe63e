#include "recipe/fanout_recipe.h"

#include <algorithm>

#include "recipe/unused_fields.h"

namespace levada::recipe {
namespace {

const std::string kDisaggregated = "deployment.disaggregated";
const std::string kFanout = kDisaggregated + ".windowed_fanout";
const std::string kManaged = kDisaggregated + ".managed_local";
const std::string kConsumers = kFanout + ".consumers";
const std::string kServers = kManaged + ".capture_servers";

void describe(OptionTable& table, FanoutRecipe& recipe) {
  table.begin_section("");
  table.add("run_id", &recipe.run_id, "names the run and its samples");
  table.add("output_dir", &recipe.output_dir, "folder of checkpoints and logs");
  describe(table, "model", recipe.model);
  describe(table, "data", recipe.data);
  describe(table, "training", recipe.training);
  describe(table, "runtime", recipe.runtime);
  table.begin_section("deployment");
  table.add("mode", &recipe.mode, "where the roles run").choices({"local_colocated", "disaggregated"});
  describe(table, "deployment.trainer", recipe.trainer);
  describe(table, kDisaggregated, recipe.disaggregated);
  describe(table, kFanout, recipe.fanout);
  describe(table, kManaged, recipe.managed_local);
  describe(table, "levada", recipe.levada);
}

Status need(const Recipe& recipe, const std::string& section, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string path = section.empty() ? name : section + "." + name;
    if (!recipe.names(path)) return invalid_argument("is missing", path);
  }
  return {};
}

// A consumer starts as a copy of the run's model and training; what its item says lands on top.
Status read_consumers(const Recipe& text, FanoutRecipe& recipe) {
  LEVADA_ASSIGN_OR_RETURN(const std::size_t count, text.items(kConsumers));
  for (std::size_t i = 0; i < count; ++i) {
    Consumer consumer;
    consumer.model = recipe.model;
    consumer.training = recipe.training;
    consumer.window_lookbehind = recipe.fanout.window_lookbehind;
    consumer.window_lookahead = recipe.fanout.window_lookahead;
    consumer.max_prefetch = recipe.fanout.max_prefetch_per_consumer;
    consumer.nproc_per_node = recipe.trainer.nproc_per_node;
    OptionTable table;
    describe(table, kConsumers + "[" + std::to_string(i) + "]", consumer);
    LEVADA_RETURN_IF_ERROR(text.apply_item(kConsumers, i, table));
    LEVADA_RETURN_IF_ERROR(
        need(text, kConsumers + "." + std::to_string(i),
             {"consumer_id", "seed", "loss_type", "dpace_alpha", "num_anchors", "learning_rate", "warmup_ratio"}));
    recipe.consumers.push_back(std::move(consumer));
  }
  return {};
}

Status read_servers(const Recipe& text, FanoutRecipe& recipe, UnusedFields& unused) {
  recipe.managed = text.names(kManaged);
  LEVADA_ASSIGN_OR_RETURN(const std::size_t count, text.items(kServers));
  for (std::size_t i = 0; i < count; ++i) {
    CaptureServer server;
    OptionTable table;
    const std::string path = kServers + "[" + std::to_string(i) + "]";
    describe(table, path, server);
    unused.describe_server(table, path);
    LEVADA_RETURN_IF_ERROR(text.apply_item(kServers, i, table));
    LEVADA_RETURN_IF_ERROR(need(text, kServers + "." + std::to_string(i), {"port"}));
    recipe.managed_local.capture_servers.push_back(std::move(server));
  }
  return {};
}

}  // namespace

bool FanoutRecipe::on_cuda() const {
  if (levada.device != "auto") return levada.device == "cuda";
  if (managed) return !managed_local.trainer_cuda_visible_devices.empty();
  return std::any_of(consumers.begin(), consumers.end(), [](const Consumer& c) { return c.cuda_visible_device; });
}

std::int64_t FanoutRecipe::steps_of(const Consumer& consumer) const {
  const std::int64_t all = data.max_prompts * training.num_epochs / consumer.quantum();
  return consumer.training.max_steps ? std::min(*consumer.training.max_steps, all) : all;
}

const Consumer* FanoutRecipe::find_consumer(const std::string& id) const {
  const auto found = std::find_if(consumers.begin(), consumers.end(),
                                  [&](const Consumer& consumer) { return consumer.consumer_id == id; });
  return found == consumers.end() ? nullptr : &*found;
}

Result<FanoutRecipe> read_fanout(Recipe text, const OptionTable& server) {
  FanoutRecipe recipe;
  UnusedFields unused;
  OptionTable table = server;
  describe(table, recipe);
  unused.describe(table);
  LEVADA_RETURN_IF_ERROR(text.apply(table, {kConsumers, kServers}));
  LEVADA_RETURN_IF_ERROR(need(text, "", {"model.target_model_path", "deployment.mode"}));
  LEVADA_RETURN_IF_ERROR(need(text, kDisaggregated, {"control_dir", "backend", "windowed_fanout"}));
  LEVADA_RETURN_IF_ERROR(need(text, kFanout, {"consumers", "max_live_bytes"}));
  LEVADA_RETURN_IF_ERROR(read_consumers(text, recipe));
  LEVADA_RETURN_IF_ERROR(read_servers(text, recipe, unused));
  LEVADA_RETURN_IF_ERROR(unused.check());
  recipe.unused = unused.mentioned(text);
  for (const OptionTable::Option& option : server.options()) {
    if (text.names(option.path())) recipe.server_flags.emplace_back(option.flags().front(), option.value());
  }
  LEVADA_RETURN_IF_ERROR(check(recipe));
  return recipe;
}

Result<FanoutRecipe> load_fanout(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                 const OptionTable& server) {
  LEVADA_ASSIGN_OR_RETURN(Recipe text, Recipe::load(file));
  for (const std::string& assignment : overrides) LEVADA_RETURN_IF_ERROR(text.override_with(assignment));
  return read_fanout(std::move(text), server);
}

}  // namespace levada::recipe
