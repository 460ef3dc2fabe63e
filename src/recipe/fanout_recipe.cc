#include "recipe/fanout_recipe.h"

#include <algorithm>
#include <cstdlib>

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

const std::string kFlywheel = "flywheel";

// A round is a run like any other, on the samples of its folder and with the flywheel's server as one that is there already.
Status become_a_round(const FlywheelSection& flywheel, FanoutRecipe& recipe) {
  recipe.levada.device = recipe.on_cuda() ? "cuda" : "cpu";
  const std::vector<std::string>& devices = recipe.managed_local.trainer_cuda_visible_devices;
  for (std::size_t i = 0; i < std::min(devices.size(), recipe.consumers.size()); ++i) {
    recipe.consumers[i].cuda_visible_device = std::strtoll(devices[i].c_str(), nullptr, 10);
  }
  for (const CaptureServer& server : recipe.managed_local.capture_servers) {
    recipe.disaggregated.server_urls.push_back("http://127.0.0.1:" + std::to_string(server.port));
  }
  recipe.managed = false;
  recipe.managed_local = {};
  recipe.output_dir = *flywheel.round;
  recipe.disaggregated.control_dir = *flywheel.round + "/control";
  recipe.data.prompts_path = *flywheel.round + "/train.jsonl";
  return {};
}

Status read_flywheel(const Recipe& text, const FlywheelSection& flywheel, FanoutRecipe& recipe) {
  if (!text.names(kFlywheel)) return {};
  if (recipe.data.prompts_path || recipe.data.train_data_path) {
    return invalid_argument("must be left out: a flywheel trains on what it serves", "data");
  }
  if (!recipe.managed) return invalid_argument("needs managed_local: it samples its own server", kFlywheel);
  if (flywheel.round) return become_a_round(flywheel, recipe);
  if (flywheel.samples_per_round < flywheel.min_samples) {
    return invalid_argument("must be at least min_samples", kFlywheel + ".samples_per_round");
  }
  recipe.flywheel = flywheel;
  recipe.data.prompts_path = recipe.flywheel_folder() + "/train.jsonl";  // each round has its own
  if (recipe.data.max_prompts == 0) recipe.data.max_prompts = recipe.training.quantum() * recipe.trainer.nproc_per_node;
  return {};
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
  FlywheelSection flywheel;
  OptionTable table = server;
  describe(table, recipe);
  describe(table, kFlywheel, flywheel);
  unused.describe(table);
  LEVADA_RETURN_IF_ERROR(text.apply(table, {kConsumers, kServers}));
  LEVADA_RETURN_IF_ERROR(need(text, "", {"model.target_model_path", "deployment.mode"}));
  LEVADA_RETURN_IF_ERROR(need(text, kDisaggregated, {"control_dir", "backend", "windowed_fanout"}));
  LEVADA_RETURN_IF_ERROR(need(text, kFanout, {"consumers", "max_live_bytes"}));
  LEVADA_RETURN_IF_ERROR(read_consumers(text, recipe));
  LEVADA_RETURN_IF_ERROR(read_servers(text, recipe, unused));
  LEVADA_RETURN_IF_ERROR(read_flywheel(text, flywheel, recipe));
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
