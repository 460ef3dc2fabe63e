#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/durable_file.h"
#include "model/json_fields.h"
#include "train/draft_files.h"

namespace levada::train {
namespace {

namespace fs = std::filesystem;
constexpr int kVersion = 1;

nlohmann::ordered_json contract_json(const Contract& c) {
  const Options& o = c.options;
  return {{"draft", nlohmann::ordered_json::parse(model::draft_config_json(c.config))},
          {"tables", c.tables},
          {"world", c.world},
          {"batch_size", o.batch_size},
          {"accumulation_steps", o.accumulation_steps},
          {"total_steps", o.total_steps},
          {"learning_rate", o.learning_rate},
          {"lr_scheduler", o.lr_scheduler},
          {"warmup_ratio", o.warmup_ratio},
          {"max_grad_norm", o.max_grad_norm},
          {"weight_decay", o.weight_decay},
          {"loss_type", o.loss_type},
          {"loss_decay_gamma", o.loss_decay_gamma},
          {"dpace_alpha", o.dpace_alpha},
          {"num_anchors", o.num_anchors},
          {"max_length", o.max_length},
          {"seed", o.seed},
          {"torch_dtype", o.torch_dtype}};
}

std::vector<NamedFlat> optimizer_parts(const DraftState& state) {
  return {{"master.", state.masters}, {"first_moment.", state.first_moment}, {"second_moment.", state.second_moment}};
}

std::string step_prefix(const Options& options) { return options.run_id + "-step"; }

// The step in a checkpoint folder's name; nullopt for anything else.
std::optional<std::int64_t> step_of(const std::string& name, const Options& options) {
  const std::string prefix = step_prefix(options);
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  return error == std::errc() && stop == end ? std::optional(step) : std::nullopt;
}

// Removes what crashed saves left behind, later steps, and the oldest beyond max_checkpoints.
void rotate(const Options& options, std::int64_t saved_step) {
  std::error_code ignored;
  std::vector<std::pair<std::int64_t, fs::path>> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(options.output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("." + step_prefix(options))) fs::remove_all(entry.path(), ignored);
    if (const auto step = step_of(name, options)) steps.emplace_back(*step, entry.path());
  }
  std::sort(steps.begin(), steps.end());
  while (!steps.empty() && steps.back().first > saved_step) {
    fs::remove_all(steps.back().second, ignored);
    steps.pop_back();
  }
  const auto kept = options.max_checkpoints > 0 ? static_cast<std::size_t>(options.max_checkpoints) : steps.size();
  for (std::size_t i = 0; i + kept < steps.size(); ++i) fs::remove_all(steps[i].second, ignored);
}

Status write_text(const fs::path& file, const std::string& text) {
  const std::string_view pieces[] = {text};
  return write_synced(file, pieces);
}

Status write_files(const fs::path& folder, const Contract& contract, const DraftState& state) {
  const std::vector<NamedFlat> parts = optimizer_parts(state);
  LEVADA_RETURN_IF_ERROR(write_text(folder / "config.json", model::draft_config_json(contract.config)));
  LEVADA_RETURN_IF_ERROR(
      write_synced(folder / "model.safetensors", DraftImage(state.slices, {{"", state.weights_flat}}).pieces()));
  LEVADA_RETURN_IF_ERROR(write_synced(folder / "optimizer.safetensors", DraftImage(state.slices, parts).pieces()));
  nlohmann::ordered_json json{{"format", "levada-dflash-checkpoint"},
                              {"version", kVersion},
                              {"run_id", contract.options.run_id},
                              {"step", state.steps},
                              {"updates", state.updates},
                              {"samples", state.steps * contract.options.samples_per_step() * contract.world},
                              {"contract", contract_json(contract)}};
  for (const NamedFlat& part : parts) json["checksums"][part.prefix] = checksum(part.flat);
  LEVADA_RETURN_IF_ERROR(write_text(folder / "state.json", json.dump(2) + "\n"));
  return sync_folder(folder);
}

Status compare(const nlohmann::json& stored, const nlohmann::json& now, const std::string& file,
               const std::string& under) {
  for (const auto& [field, value] : now.items()) {
    const auto found = stored.find(field);
    if (found != stored.end() && *found == value) continue;
    if (found != stored.end() && found->is_object() && value.is_object()) {
      LEVADA_RETURN_IF_ERROR(compare(*found, value, file, under + field + "."));
      continue;
    }
    return invalid_argument(file + ": the run was made with " +
                                (found == stored.end() ? std::string("none") : found->dump().substr(0, 80)) +
                                ", now it is " + value.dump().substr(0, 80),
                            under + field);
  }
  return {};
}

}  // namespace

Status write_export(const fs::path& folder, const model::DraftConfig& config, const DraftState& state) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return unavailable(folder.string() + ": " + error.message());
  // Weights first: a folder with a config has them.
  LEVADA_RETURN_IF_ERROR(
      replace_file(folder / "model.safetensors", DraftImage(state.slices, {{"", state.weights_flat}}).pieces()));
  const std::string text = model::draft_config_json(config);
  const std::string_view pieces[] = {text};
  return replace_file(folder / "config.json", pieces);
}

Result<fs::path> save_checkpoint(const Contract& contract, const DraftState& state) {
  const Options& options = contract.options;
  const fs::path root = options.output_dir;
  const std::string name = step_prefix(options) + std::to_string(state.steps);
  const fs::path folder = root / name;
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return unavailable(root.string() + ": " + error.message());
  const fs::path beside = root / ("." + name + ".tmp"), old = root / ("." + name + ".old");
  fs::remove_all(beside, error);
  fs::remove_all(old, error);
  fs::create_directory(beside, error);
  if (error) return unavailable(beside.string() + ": " + error.message());
  if (const Status written = write_files(beside, contract, state); !written.ok()) {
    fs::remove_all(beside, error);
    return written;
  }
  if (fs::exists(folder, error)) fs::rename(folder, old, error);
  fs::rename(beside, folder, error);
  if (error) return unavailable(folder.string() + ": " + error.message());
  LEVADA_RETURN_IF_ERROR(sync_folder(root));
  LEVADA_RETURN_IF_ERROR(replace_link(root / (options.run_id + "-latest"), name));
  rotate(options, state.steps);
  return folder;
}

Status load_checkpoint(const fs::path& folder, const Contract& contract, DraftState& state) {
  const std::string file = (folder / "state.json").string();
  LEVADA_ASSIGN_OR_RETURN(const nlohmann::json json, model::read_json_object(file));
  model::JsonFields fields(json, file);
  const std::string format = fields.text("format");
  const std::int64_t version = fields.integer("version"), step = fields.integer("step"),
                     updates = fields.integer("updates");
  const nlohmann::json *stored = fields.object("contract"), *checksums = fields.object("checksums");
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (format != "levada-dflash-checkpoint" || version != kVersion || stored == nullptr || checksums == nullptr) {
    return data_loss(file + ": is no checkpoint of version " + std::to_string(kVersion));
  }
  if (step < 0 || updates < 0 || updates > step) {
    return data_loss(file + ": " + std::to_string(updates) + " updates in " + std::to_string(step) + " steps");
  }
  LEVADA_RETURN_IF_ERROR(compare(*stored, contract_json(contract), file, ""));
  const std::vector<NamedFlat> parts = optimizer_parts(state);
  LEVADA_RETURN_IF_ERROR(read_draft_safetensors(folder / "optimizer.safetensors", state.slices, parts, false));
  for (const NamedFlat& part : parts) {
    const auto expected = checksums->find(part.prefix);
    if (expected == checksums->end() || *expected != checksum(part.flat)) {
      return data_loss((folder / "optimizer.safetensors").string() + ": the checksum of " + part.prefix +
                       "* is another than the one in state.json");
    }
  }
  state.round_weights();
  state.steps = step;
  state.updates = updates;
  return {};
}

}  // namespace levada::train
