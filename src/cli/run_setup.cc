#include "cli/run_setup.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>

#include "base/hash.h"
#include "base/hex.h"
#include "cli/model_locator.h"
#include "files/gguf.h"
#include "model/config.h"
#include "recipe/launch_plan.h"

namespace levada::cli {
namespace {

constexpr std::int64_t kDraftLayers = 5;  // of a draft whose depth nobody says

std::int64_t microseconds(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 1e6)); }

std::string joined(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? "" : ",") + item;
  return list;
}

Result<model::ModelConfig> read_target(const std::string& name) {
  LEVADA_ASSIGN_OR_RETURN(const std::filesystem::path path, locate_model(name));
  if (std::filesystem::is_directory(path)) return model::read_hf_config(path);
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<files::GgufFile> gguf, files::GgufFile::open(path));
  return model::read_gguf_config(*gguf, path.string());
}

// The double that reads like this float: 1e-05, not 9.99999974737875e-06.
double as_written(float number) {
  char text[32];
  const char* end = std::to_chars(text, text + sizeof text, number).ptr;
  double value = 0;
  std::from_chars(text, end, value);
  return value;
}

model::DraftConfig shaped_like(const model::ModelConfig& target) {
  model::DraftConfig draft;
  draft.hidden = target.hidden;
  draft.intermediate = target.intermediate;
  draft.layers = kDraftLayers;
  draft.heads = target.heads;
  draft.kv_heads = target.kv_heads;
  draft.head_dim = target.head_dim;
  draft.vocabulary = target.vocabulary;
  draft.norm_eps = as_written(target.norm_eps);
  draft.rope_theta = target.rope.theta;
  draft.max_positions = target.context;
  draft.num_target_layers = target.layers;
  return draft;
}

Result<std::vector<std::int64_t>> layer_ids(const std::vector<std::string>& words) {
  std::vector<std::int64_t> ids;
  for (const std::string& word : words) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0) {
      return invalid_argument("must be a list of layer numbers, got \"" + word + "\"", "levada.target_layer_ids");
    }
    ids.push_back(id);
  }
  return ids;
}

Result<model::DraftConfig> first_shape(const recipe::ModelSection& model) {
  if (model.draft_model_config) return model::read_draft_config(*model.draft_model_config);
  LEVADA_ASSIGN_OR_RETURN(const model::ModelConfig target, read_target(model.target_model_path));
  if (!model.mask_token_id) {
    return invalid_argument("is missing, and there is no draft_model_config to say it", "model.mask_token_id");
  }
  return shaped_like(target);
}

}  // namespace

fanout::ConsumerSpec window_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer) {
  return {.consumer_id = consumer.consumer_id,
          .quantum = consumer.quantum(),
          .lookbehind = consumer.window_lookbehind,
          .lookahead = consumer.window_lookahead,
          .prefetch_depth = consumer.max_prefetch,
          .max_outstanding = recipe.fanout.max_outstanding_per_consumer};
}

fanout::RunConfig run_config_of(const recipe::FanoutRecipe& recipe) {
  const recipe::WindowedFanoutSection& fanout = recipe.fanout;
  fanout::RunConfig run;
  run.run_id = recipe.run_id;
  run.store_id = recipe.store_id();
  for (const recipe::Consumer& consumer : recipe.consumers) run.consumers.push_back(window_of(recipe, consumer));
  run.max_live_refs = fanout.max_live_refs;
  run.max_live_bytes = fanout.max_live_bytes;
  run.capture_reservation_bytes = fanout.capture_reservation_bytes;
  run.max_capture_retries = fanout.max_capture_retries;
  run.removal_tries = fanout.drain_tries;
  run.abort_on_consumer_failure = fanout.on_consumer_failure == "abort_all";
  run.skip_failed = fanout.skip_failed;
  run.max_lead = fanout.max_lead;
  run.times = {.lease_ttl_us = microseconds(fanout.lease_ttl_s),
               .heartbeat_us = microseconds(fanout.consumer_heartbeat_interval_s),
               .session_ttl_us = microseconds(fanout.consumer_heartbeat_timeout_s),
               .detach_grace_us = microseconds(fanout.detach_grace_s),
               .registration_timeout_us = microseconds(fanout.consumer_registration_timeout_s),
               .capture_timeout_us = microseconds(fanout.capture_timeout_s),
               .retry_backoff_us = microseconds(fanout.capture_retry_backoff_s),
               .removal_interval_us = microseconds(fanout.drain_interval_s)};
  return run;
}

Result<producer::Options> producer_options_of(const recipe::FanoutRecipe& recipe) {
  const recipe::WindowedFanoutSection& fanout = recipe.fanout;
  producer::Options options;
  options.prompts = recipe.data.prompts();
  options.max_prompts = recipe.data.max_prompts;
  options.max_length = recipe.data.max_length;
  if (recipe.levada.answer_max_tokens) options.max_answer_tokens = *recipe.levada.answer_max_tokens;
  options.epochs = recipe.training.num_epochs;
  options.prompt_seed = recipe.training.prompt_seed.value_or(recipe.training.seed);
  options.control_dir = recipe.disaggregated.control_dir;
  options.server_urls = joined(recipe::server_urls(recipe));
  options.target_model = recipe.model.target_model_path;
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::int64_t> layers, captured_layers(recipe));
  std::vector<std::string> words;
  for (const std::int64_t layer : layers) words.push_back(std::to_string(layer));
  options.aux_layer_ids = joined(words);
  LEVADA_ASSIGN_OR_RETURN(const model::DraftConfig draft, draft_config_of(recipe, recipe.consumers[0]));
  options.target_hidden_size = draft.hidden;  // a draft reads its target's states as wide as they are
  options.target_vocabulary = draft.vocabulary;
  options.capture_batch_size = fanout.capture_batch_size;
  options.producer_concurrency = recipe.runtime.producer_concurrency;
  options.capture_timeout_s = fanout.capture_timeout_s;
  options.store_transport = recipe.levada.transport;
  return options;
}

consumer::Options consumer_options_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer) {
  consumer::Options options;
  options.consumer_id = consumer.consumer_id;
  options.control_dir = recipe.disaggregated.control_dir;
  // A port that the recipe names is better than what an earlier start may have left in the run's card.
  if (recipe.fanout.port != 0) {
    options.registry_url = "http://" + recipe.fanout.bind + ":" + std::to_string(recipe.fanout.port);
  }
  options.start_wait_s = recipe.fanout.consumer_registration_timeout_s;
  options.idle_timeout_s = recipe.fanout.consumer_idle_timeout_s;
  options.read_margin_s = recipe.fanout.read_margin_s;
  return options;
}

std::vector<std::pair<std::string, std::string>> training_terms(const train::Options& options,
                                                                const model::DraftConfig& draft) {
  train::Options copy = options;
  OptionTable table;
  train::describe(table, copy);
  const std::set<std::string> elsewhere = {"threads",       "output_dir",      "log_interval",
                                           "save_interval", "max_checkpoints", "eval_interval"};
  std::vector<std::pair<std::string, std::string>> terms;
  for (const OptionTable::Option& option : table.options()) {
    if (elsewhere.count(option.name()) == 0) terms.emplace_back(option.name(), option.value());
  }
  terms.emplace_back("draft", model::draft_config_json(draft));
  return terms;
}

std::string training_hash(const train::Options& options, const model::DraftConfig& draft) {
  std::string text;
  for (const auto& [name, value] : training_terms(options, draft)) text += name + "=" + value + "\n";
  return hex64(hash64(std::as_bytes(std::span(text))));
}

train::Options trainer_options_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer) {
  const recipe::TrainingSection& training = consumer.training;
  train::Options options;
  options.batch_size = training.batch_size;
  options.accumulation_steps = training.accumulation_steps;
  options.total_steps = training.total_steps.value_or(recipe.steps_of(consumer));
  options.learning_rate = training.learning_rate;
  options.lr_scheduler = training.lr_scheduler;
  options.warmup_ratio = training.warmup_ratio;
  options.max_grad_norm = training.max_grad_norm;
  options.loss_type = training.loss_type;
  options.loss_decay_gamma = training.loss_decay_gamma.value_or(0);
  options.dpace_alpha = training.dpace_alpha;
  options.num_anchors = training.num_anchors;
  options.objective_chunk_blocks = training.objective_chunk_blocks;
  options.max_length = recipe.data.max_length;
  options.seed = training.seed;
  options.threads = recipe.levada.trainer_threads;
  options.torch_dtype = recipe.model.torch_dtype;
  options.device = recipe.on_cuda() ? "cuda" : "cpu";
  options.output_dir = (std::filesystem::path(recipe.output_dir) / consumer.consumer_id).string();
  options.run_id = recipe.run_id;
  options.save_interval = training.save_interval;
  options.max_checkpoints = training.max_checkpoints;
  options.log_interval = training.log_interval;
  return options;
}

Result<model::DraftConfig> draft_config_of(const recipe::FanoutRecipe& recipe, const recipe::Consumer& consumer) {
  const recipe::ModelSection& model = consumer.model;
  LEVADA_ASSIGN_OR_RETURN(model::DraftConfig draft, first_shape(model));
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::int64_t> ids, layer_ids(recipe.levada.target_layer_ids));
  if (model.draft_num_hidden_layers) draft.layers = *model.draft_num_hidden_layers;
  draft.sliding.resize(static_cast<std::size_t>(draft.layers), false);
  if (model.draft_block_size) draft.block_size = *model.draft_block_size;
  if (model.mask_token_id) draft.mask_token_id = *model.mask_token_id;
  if (!ids.empty()) draft.target_layer_ids = ids;
  if (draft.target_layer_ids.empty()) {
    if (draft.num_target_layers < 5) {
      return invalid_argument(
          "is needed: a target of " + std::to_string(draft.num_target_layers) + " layers has no usual choice",
          "levada.target_layer_ids");
    }
    draft.target_layer_ids = model::default_target_layer_ids(draft.num_target_layers, draft.layers);
  }
  draft.dtype = recipe.model.torch_dtype;
  LEVADA_RETURN_IF_ERROR(model::check(draft, "the draft of " + consumer.consumer_id));
  return draft;
}

Result<std::vector<std::int64_t>> captured_layers(const recipe::FanoutRecipe& recipe) {
  std::vector<std::int64_t> layers;
  for (const recipe::Consumer& consumer : recipe.consumers) {
    LEVADA_ASSIGN_OR_RETURN(const model::DraftConfig draft, draft_config_of(recipe, consumer));
    if (layers.empty()) layers = draft.target_layer_ids;
    if (layers != draft.target_layer_ids) {
      return invalid_argument("the draft of " + consumer.consumer_id + " reads other layers than that of " +
                                  recipe.consumers[0].consumer_id + ": set levada.target_layer_ids",
                              "levada.target_layer_ids");
    }
  }
  return layers;
}

}  // namespace levada::cli
