// The rules between fields of a fan-out recipe: SpecForge's own, and ours where a run could stall or lose its way.
#include <algorithm>
#include <set>

#include "recipe/fanout_recipe.h"

namespace levada::recipe {
namespace {

const std::string kFanout = "deployment.disaggregated.windowed_fanout.";
const std::string kManaged = "deployment.disaggregated.managed_local.";

std::string text(std::int64_t number) { return std::to_string(number); }

Status refuse(const std::string& field, const std::string& what) { return invalid_argument(what, field); }

bool is_id(const std::string& id) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (id.empty() || id.size() > 128 || !letter(id[0])) return false;
  return std::all_of(id.begin(), id.end(), [&](char c) { return letter(c) || c == '_' || c == '.' || c == '-'; });
}

Status check_what_is_trained(const FanoutRecipe& recipe) {
  if (!is_id(recipe.run_id)) {
    return refuse("run_id", "must be 1 to 128 of A-Z a-z 0-9 _ . - beginning with a letter or digit, got \"" +
                                recipe.run_id + "\"");
  }
  if (recipe.training.strategy != "dflash") {
    return refuse("training.strategy", "must be dflash, got " + recipe.training.strategy);
  }
  const int sources = recipe.data.train_data_path.has_value() + recipe.data.prompts_path.has_value() +
                      recipe.data.hidden_states_path.has_value();
  if (sources != 1) return refuse("data", "needs exactly one of train_data_path and prompts_path");
  if (recipe.data.hidden_states_path) {
    return refuse("data.hidden_states_path", "is for training from files; a fan-out run captures as it goes");
  }
  if (recipe.model.torch_dtype == "float16") {
    return refuse("model.torch_dtype", "must be bfloat16 or float32, got float16");
  }
  const std::int64_t quantum = recipe.training.quantum() * recipe.trainer.nproc_per_node;
  const std::int64_t prompts = recipe.data.max_prompts;
  if (prompts < 1 || prompts % quantum != 0) {
    return refuse("data.max_prompts", "must be a multiple of batch_size * accumulation_steps * nproc_per_node = " +
                                          text(quantum) + " above 0, got " + text(prompts));
  }
  const std::int64_t steps = prompts * recipe.training.num_epochs / quantum;
  if (recipe.training.total_steps && *recipe.training.total_steps != steps) {
    return refuse("training.total_steps", "must be left out or " + text(steps) + ", the steps of all prompts, got " +
                                              text(*recipe.training.total_steps));
  }
  const std::string longest = text(recipe.data.max_length + 7);
  if (recipe.model.sglang_context_length && *recipe.model.sglang_context_length < recipe.data.max_length + 7) {
    return refuse("model.sglang_context_length", "must be at least data.max_length + 7 = " + longest + ", got " +
                                                     text(*recipe.model.sglang_context_length));
  }
  return {};
}

Status check_deployment(const FanoutRecipe& recipe) {
  if (recipe.mode != "disaggregated") return refuse("deployment.mode", "must be disaggregated, got " + recipe.mode);
  if (recipe.disaggregated.backend != "mooncake") {
    return refuse("deployment.disaggregated.backend", "must be mooncake, got " + recipe.disaggregated.backend);
  }
  if (recipe.store_id() != recipe.run_id) {
    return refuse("deployment.disaggregated.store_id",
                  "must be left out or run_id = " + recipe.run_id + ", got " + recipe.store_id());
  }
  if (recipe.training.resume_from) {
    return refuse("training.resume_from", "is each consumer's own: windowed_fanout.consumers[].resume_from");
  }
  if (recipe.trainer.nnodes != 1) return refuse("deployment.trainer.nnodes", "must be 1");
  const RuntimeSection& runtime = recipe.runtime;
  const std::int64_t quantum = recipe.training.quantum();
  if (runtime.in_flight_low_watermark > runtime.in_flight_high_watermark) {
    return refuse("runtime.in_flight_low_watermark",
                  "must be at most in_flight_high_watermark = " + text(runtime.in_flight_high_watermark));
  }
  if (runtime.in_flight_low_watermark < quantum) {
    return refuse("runtime.in_flight_low_watermark", "must be at least one optimizer step = " + text(quantum));
  }
  const auto &high = runtime.resident_high_watermark_bytes, &low = runtime.resident_low_watermark_bytes,
             &cap = runtime.feature_store_max_resident_bytes;
  if (low && (!high || *low > *high)) {
    return refuse("runtime.resident_low_watermark_bytes", "needs a resident_high_watermark_bytes that is not lower");
  }
  if (cap && high && *cap < *high) {
    return refuse("runtime.feature_store_max_resident_bytes", "must be at least resident_high_watermark_bytes");
  }
  return {};
}

Status check_times(const WindowedFanoutSection& fanout) {
  if (fanout.consumer_heartbeat_timeout_s <= fanout.consumer_heartbeat_interval_s) {
    return refuse(kFanout + "consumer_heartbeat_timeout_s", "must be more than consumer_heartbeat_interval_s");
  }
  if (fanout.consumer_heartbeat_interval_s * 2 > fanout.lease_ttl_s) {
    return refuse(kFanout + "lease_ttl_s", "must be at least twice consumer_heartbeat_interval_s");
  }
  if (fanout.read_margin_s >= fanout.lease_ttl_s - fanout.consumer_heartbeat_interval_s) {
    return refuse(kFanout + "read_margin_s", "must be less than lease_ttl_s - consumer_heartbeat_interval_s");
  }
  return {};
}

// An override may shape a draft and its objective; what all share must stay shared.
Status check_shared(const FanoutRecipe& recipe, const Consumer& consumer, const std::string& field) {
  const auto same = [&](const char* name, bool equal) {
    return equal ? Status() : refuse(field + ".overrides." + name, "is the same for all consumers: set it for the run");
  };
  LEVADA_RETURN_IF_ERROR(
      same("model.target_model_path", consumer.model.target_model_path == recipe.model.target_model_path));
  LEVADA_RETURN_IF_ERROR(same("model.torch_dtype", consumer.model.torch_dtype == recipe.model.torch_dtype));
  LEVADA_RETURN_IF_ERROR(same("training.strategy", consumer.training.strategy == recipe.training.strategy));
  LEVADA_RETURN_IF_ERROR(same("training.num_epochs", consumer.training.num_epochs == recipe.training.num_epochs));
  return same("training.prompt_seed", consumer.training.prompt_seed == recipe.training.prompt_seed);
}

Status check_consumer(const FanoutRecipe& recipe, std::size_t index) {
  const Consumer& consumer = recipe.consumers[index];
  const std::string field = kFanout + "consumers[" + std::to_string(index) + "]";
  if (consumer.consumer_id == "producer" || consumer.consumer_id == "logs" ||
      consumer.consumer_id.starts_with("server-")) {
    return refuse(field + ".consumer_id", "must not be producer, logs or server-…: those name other parts of a run");
  }
  if (!is_id(consumer.consumer_id)) {
    return refuse(
        field + ".consumer_id",
        "must be 1 to 128 of A-Z a-z 0-9 _ . - beginning with a letter or digit, got \"" + consumer.consumer_id + "\"");
  }
  LEVADA_RETURN_IF_ERROR(check_shared(recipe, consumer, field));
  if (consumer.nproc_per_node != 1 && recipe.on_cuda()) {
    return refuse(field + ".nproc_per_node", "must be 1: a trainer has one GPU");
  }
  const std::int64_t quantum = consumer.quantum();
  const std::string step = text(quantum) + ", the samples of one optimizer step of " + consumer.consumer_id;
  if (consumer.window_lookahead + 1 < quantum) {
    return refuse(kFanout + "window_lookahead", "must be at least " + text(quantum - 1) + ": + 1 it must hold " + step);
  }
  if (recipe.fanout.max_outstanding_per_consumer < quantum) {
    return refuse(kFanout + "max_outstanding_per_consumer", "must be at least " + step);
  }
  if (consumer.max_prefetch > consumer.window_lookahead + 1) {
    return refuse(kFanout + "max_prefetch_per_consumer",
                  "must be at most window_lookahead + 1 = " + text(consumer.window_lookahead + 1));
  }
  if (recipe.fanout.max_lead != 0 && recipe.fanout.max_lead < quantum) {
    return refuse(kFanout + "max_lead", "must be 0 or at least " + step);
  }
  if (consumer.training.resume_from && recipe.managed) {
    return refuse(field + ".resume_from", "is for external servers; a run of `levada up` resumes by itself");
  }
  return {};
}

Status check_limits(const FanoutRecipe& recipe) {
  const WindowedFanoutSection& fanout = recipe.fanout;
  if (fanout.max_live_refs < fanout.max_outstanding_per_consumer) {
    return refuse(kFanout + "max_live_refs",
                  "must be at least max_outstanding_per_consumer = " + text(fanout.max_outstanding_per_consumer));
  }
  std::int64_t together = 0;
  for (const Consumer& consumer : recipe.consumers) together += consumer.quantum();
  if (fanout.max_live_refs < together) {
    return refuse(kFanout + "max_live_refs", "must be at least " + text(together) +
                                                 ", the samples of one optimizer step of every consumer, got " +
                                                 text(fanout.max_live_refs));
  }
  if (fanout.capture_reservation_bytes < fanout.capture_max_sample_bytes) {
    return refuse(kFanout + "capture_reservation_bytes",
                  "must be at least capture_max_sample_bytes = " + text(fanout.capture_max_sample_bytes));
  }
  if (fanout.max_live_bytes < fanout.capture_reservation_bytes) {
    return refuse(kFanout + "max_live_bytes",
                  "must be at least capture_reservation_bytes = " + text(fanout.capture_reservation_bytes));
  }
  return {};
}

Status check_transport(const FanoutRecipe& recipe) {
  if (recipe.levada.transport != "nvlink" || recipe.on_cuda()) return {};
  return refuse("levada.transport", "nvlink keeps features on a GPU: needs levada.device cuda");
}

Status check_consumers(const FanoutRecipe& recipe) {
  if (recipe.consumers.empty()) return refuse(kFanout + "consumers", "needs at least one");
  std::set<std::string> ids;
  std::set<std::int64_t> devices;
  for (std::size_t i = 0; i < recipe.consumers.size(); ++i) {
    const Consumer& consumer = recipe.consumers[i];
    const std::string field = kFanout + "consumers[" + std::to_string(i) + "]";
    LEVADA_RETURN_IF_ERROR(check_consumer(recipe, i));
    if (!ids.insert(consumer.consumer_id).second) {
      return refuse(field + ".consumer_id", "is " + consumer.consumer_id + ", as another's is");
    }
    const auto& device = consumer.cuda_visible_device;
    if (device && recipe.managed) return refuse(field + ".cuda_visible_device", "is for external servers only");
    if (device && !devices.insert(*device).second && !recipe.levada.share_gpus) {
      return refuse(field + ".cuda_visible_device", "is " + text(*device) + ", as another's is");
    }
    if (!device && !recipe.managed && recipe.on_cuda()) return refuse(field + ".cuda_visible_device", "is missing");
  }
  return {};
}

// What the launcher says to a server itself cannot be said a second time.
Status check_server_flags(const FanoutRecipe& recipe) {
  constexpr std::pair<const char*, const char*> kOurs[] = {
      {"--model-path", "model.target_model_path"},     {"--port", "managed_local.capture_servers[].port"},
      {"--threads", "levada.server_threads"},          {"--device", "levada.device"},
      {"--arena-bytes", "levada.capture_arena_bytes"}, {"--arena-device", "levada.transport"}};
  for (const auto& [flag, value] : recipe.server_flags) {
    for (const auto& [ours, instead] : kOurs) {
      if (flag == ours) return refuse(instead, "says what " + flag + " in the server's section says: keep this one");
    }
    if (flag.starts_with("--spec-capture") || flag == "--enable-spec-capture" || flag == "--store-tcp-url" ||
        flag == "--store-ucx-url" || flag == "--store-shm-url") {
      return refuse(flag, "is set by the launcher: leave it out of the recipe");
    }
  }
  return {};
}

Status check_managed(const FanoutRecipe& recipe) {
  const ManagedLocalSection& managed = recipe.managed_local;
  LEVADA_RETURN_IF_ERROR(check_server_flags(recipe));
  if (managed.capture_servers.empty()) return refuse(kManaged + "capture_servers", "needs at least one");
  if (!recipe.disaggregated.server_urls.empty()) {
    return refuse("deployment.disaggregated.server_urls", "and managed_local exclude each other");
  }
  if (recipe.training.role != "auto") return refuse("training.role", "must be auto with managed_local");
  const std::vector<std::string>& trainers = managed.trainer_cuda_visible_devices;
  if (recipe.on_cuda() && trainers.size() != recipe.consumers.size()) {
    return refuse(kManaged + "trainer_cuda_visible_devices", "needs one entry for each of " +
                                                                 text(std::ssize(recipe.consumers)) +
                                                                 " consumers, got " + text(std::ssize(trainers)));
  }
  std::set<std::string> devices;
  std::set<std::int64_t> ports;
  const auto take = [&](const std::string& device, const std::string& field) {
    if (devices.insert(device).second || recipe.levada.share_gpus) return Status();
    return refuse(field, "names GPU " + device + " a second time; share_gpus of the section levada allows it");
  };
  for (const std::string& device : trainers) {
    LEVADA_RETURN_IF_ERROR(take(device, kManaged + "trainer_cuda_visible_devices"));
  }
  for (std::size_t i = 0; i < managed.capture_servers.size(); ++i) {
    const CaptureServer& server = managed.capture_servers[i];
    const std::string field = kManaged + "capture_servers[" + std::to_string(i) + "]";
    if (!ports.insert(server.port).second) return refuse(field + ".port", "is " + text(server.port) + ", taken above");
    if (server.tp_size != 1) return refuse(field + ".tp_size", "must be 1");
    for (const std::string& device : server.cuda_visible_devices) {
      LEVADA_RETURN_IF_ERROR(take(device, field + ".cuda_visible_devices"));
    }
    if (recipe.on_cuda() && std::ssize(server.cuda_visible_devices) != server.tp_size) {
      return refuse(field + ".cuda_visible_devices", "must name tp_size = " + text(server.tp_size) + " GPUs");
    }
  }
  if (ports.count(recipe.fanout.port) > 0) return refuse(kFanout + "port", "is a capture server's port too");
  return {};
}

}  // namespace

Status check(const FanoutRecipe& recipe) {
  LEVADA_RETURN_IF_ERROR(check_what_is_trained(recipe));
  LEVADA_RETURN_IF_ERROR(check_deployment(recipe));
  LEVADA_RETURN_IF_ERROR(check_times(recipe.fanout));
  LEVADA_RETURN_IF_ERROR(check_transport(recipe));
  LEVADA_RETURN_IF_ERROR(check_consumers(recipe));
  LEVADA_RETURN_IF_ERROR(check_limits(recipe));
  if (recipe.managed) return check_managed(recipe);
  if (recipe.disaggregated.server_urls.empty()) {
    return refuse("deployment.disaggregated", "needs server_urls or managed_local");
  }
  return {};
}

}  // namespace levada::recipe
