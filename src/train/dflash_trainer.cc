#include "train/dflash_trainer.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <cmath>

#include "base/log.h"
#include "nn/tensor.h"
#include "train/checkpoint.h"
#include "train/draft_files.h"
#include "train/micro_step.h"
#include "train/schedule.h"

namespace levada::train {
namespace {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

int world_of(const Collective* collective) { return collective != nullptr ? static_cast<int>(collective->world()) : 1; }

at::ScalarType type_of(const Options& options) { return options.torch_dtype == "float32" ? at::kFloat : at::kBFloat16; }

Status check_options(const Options& o) {
  OptionTable table;
  Options copy = o;
  describe(table, copy);
  for (const OptionTable::Option& option : table.options()) {
    // Checked by the table's own rules; text may be empty here where a default is.
    if (option.value().empty() || option.takes_null()) continue;
    LEVADA_RETURN_IF_ERROR(option.set(option.value()));
  }
  if (o.total_steps < 1) return invalid_argument("must be at least 1: the schedule needs a length", "total_steps");
  if (o.run_id.empty() || o.run_id.find('/') != std::string::npos) {
    return invalid_argument("must be a file name, got \"" + o.run_id + "\"", "run_id");
  }
  return {};
}

Status check_fit(const model::DraftConfig& config, const Options& options, const FrozenTensors& tables) {
  if (tables.hidden() != config.hidden) {
    return invalid_argument(
        "the draft has " + std::to_string(config.hidden) + ", the target " + std::to_string(tables.hidden()),
        "hidden_size");
  }
  if (tables.vocabulary() != config.vocabulary) {
    return invalid_argument(
        "the draft has " + std::to_string(config.vocabulary) + ", the target " + std::to_string(tables.vocabulary()),
        "vocab_size");
  }
  if (tables.target_layers() != config.num_target_layers) {
    return invalid_argument("the draft was made for " + std::to_string(config.num_target_layers) +
                                " layers, the target has " + std::to_string(tables.target_layers()),
                            "num_target_layers");
  }
  if (tables.embedding.scalar_type() != type_of(options)) {
    return invalid_argument("the target's tables were loaded in another type than " + options.torch_dtype,
                            "torch_dtype");
  }
  return {};
}

// Block size, type, length and mask token may change between runs; what shapes weights or their use may not.
Status check_same_geometry(const model::DraftConfig& stored, const model::DraftConfig& run, const std::string& file) {
  const std::pair<const char*, bool> fields[] = {
      {"hidden_size", stored.hidden == run.hidden},
      {"intermediate_size", stored.intermediate == run.intermediate},
      {"num_hidden_layers", stored.layers == run.layers},
      {"num_attention_heads", stored.heads == run.heads},
      {"num_key_value_heads", stored.kv_heads == run.kv_heads},
      {"head_dim", stored.head_dim == run.head_dim},
      {"vocab_size", stored.vocabulary == run.vocabulary},
      {"num_target_layers", stored.num_target_layers == run.num_target_layers},
      {"target_layer_ids", stored.target_layer_ids == run.target_layer_ids},
      // As computed with: a target's GGUF has it in float32, a config.json in decimals.
      {"rms_norm_eps", static_cast<float>(stored.norm_eps) == static_cast<float>(run.norm_eps)},
      {"rope_theta", stored.rope_theta == run.rope_theta},
      {"layer_types", stored.sliding == run.sliding},
      {"sliding_window", stored.sliding_window == run.sliding_window},
      {"attention_bias", stored.attention_bias == run.attention_bias}};
  for (const auto& [field, is_same] : fields) {
    if (!is_same) return invalid_argument(file + ": is not what the run's draft has", field);
  }
  return {};
}

class Trainer final : public DflashTrainer {
 public:
  Trainer(const Options& options, const model::DraftConfig& config, std::shared_ptr<const FrozenTensors> tables,
          Collective* collective, std::unique_ptr<nn::DraftOps> ops)
      : options_(options),
        config_(config),
        tables_(std::move(tables)),
        collective_(collective),
        ops_(std::move(ops)),
        state_(geometry_of(config_), type_of(options_), ops_->place()),
        micro_(options_, config_, state_, *tables_, *ops_),
        schedule_{options.learning_rate, options.total_steps, options.warmup_ratio, options.lr_scheduler == "cosine"} {}

  DraftState& state() { return state_; }
  // The last norm starts as small as gives logits of spread 1. A fresh draft's states are little more than the mask token's
  // embedding; a head with long rows, which a tied one has, would be sure of the wrong tokens.
  void draw_weights() {
    const double output_norm = std::min(1.0, 1 / tables_->head_row_length());
    state_.draw_masters(static_cast<std::uint64_t>(options_.seed), static_cast<float>(output_norm));
  }
  Contract contract() const { return {options_, config_, tables_->identity(), world_of(collective_)}; }

  Status load_weights(const std::filesystem::path& exported) override;
  Result<StepReport> step(std::span<const Sample> samples, const Confirm& confirm) override;
  Result<Metrics> evaluate(std::span<const Sample> samples) override;
  std::int64_t steps() const override { return state_.steps; }
  const model::DraftConfig& config() const override { return config_; }
  const Options& options() const override { return options_; }
  std::int64_t memory_bytes() const override { return state_.bytes() + micro_.bytes(); }
  Result<std::filesystem::path> save() override;
  Status export_to(const std::filesystem::path& folder) override;

 private:
  Status run_micro_steps(std::span<const Sample> samples, bool train, Metrics& total);
  Status sum_over_ranks(Metrics& metrics, bool with_gradients);
  Result<double> gradient_norm(double mean);
  Status update(StepReport& report);

  const Options options_;
  const model::DraftConfig config_;
  std::shared_ptr<const FrozenTensors> tables_;
  Collective* collective_;
  std::unique_ptr<nn::DraftOps> ops_;
  DraftState state_;
  MicroStep micro_;
  Schedule schedule_;
};

Status Trainer::load_weights(const std::filesystem::path& exported) {
  LEVADA_CHECK(state_.steps == 0, "weights are replaced before the first step only");
  LEVADA_ASSIGN_OR_RETURN(const model::DraftConfig stored, model::read_draft_config(exported / "config.json"));
  LEVADA_RETURN_IF_ERROR(check_same_geometry(stored, config_, (exported / "config.json").string()));
  Status read;
  LEVADA_RETURN_IF_ERROR(nn::guarded("loading draft weights", [&] {
    read = read_draft_safetensors(exported / "model.safetensors", state_.slices, {{"", state_.masters}}, true);
    if (read.ok()) state_.round_weights();
  }));
  return read;
}

Status Trainer::run_micro_steps(std::span<const Sample> samples, bool train, Metrics& total) {
  for (const Sample& sample : samples) LEVADA_RETURN_IF_ERROR(micro_.check(sample));
  const auto size = static_cast<std::size_t>(options_.batch_size);
  for (std::size_t first = 0; first < samples.size(); first += size) {
    const std::span<const Sample> part = samples.subspan(first, std::min(size, samples.size() - first));
    Metrics metrics;
    LEVADA_RETURN_IF_ERROR(nn::guarded("a training step", [&] { metrics = micro_.run(part, train); }));
    if (!std::isfinite(metrics.loss_num)) {
      return data_loss("sample " + part.front().sample_id + ": its batch has a loss that is not a number; are its " +
                       "hidden_states?");
    }
    total += metrics;
  }
  return {};
}

Status Trainer::sum_over_ranks(Metrics& m, bool with_gradients) {
  if (world_of(collective_) == 1) return {};
  double sums[] = {m.loss_num,
                   m.loss_den,
                   m.hits,
                   m.slots,
                   m.accepted_prefix,
                   m.blocks,
                   static_cast<double>(m.samples),
                   static_cast<double>(m.unlearnable_samples)};
  LEVADA_RETURN_IF_ERROR(collective_->all_reduce_sum(std::span<double>(sums)));
  m = {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], std::llround(sums[6]), std::llround(sums[7])};
  if (!with_gradients) return {};
  at::Tensor host;
  LEVADA_RETURN_IF_ERROR(nn::guarded("gathering gradients", [&] { host = state_.gradients_flat.cpu(); }));
  LEVADA_RETURN_IF_ERROR(
      collective_->all_reduce_sum(std::span<float>(host.data_ptr<float>(), static_cast<std::size_t>(host.numel()))));
  return nn::guarded("spreading gradients", [&] {
    if (!host.is_same(state_.gradients_flat)) state_.gradients_flat.copy_(host);
  });
}

// Waits for all that was computed from the samples.
Result<double> Trainer::gradient_norm(double mean) {
  double norm = 0;
  LEVADA_RETURN_IF_ERROR(nn::guarded("the gradient's norm",
                                     [&] { norm = std::sqrt(ops_->sum_of_squares(state_.gradients_flat)) * mean; }));
  return norm;
}

// Gradients hold the sum over all micro-steps and ranks of the numerators' gradients: one division makes them those of the
// global weighted mean.
Status Trainer::update(StepReport& report) {
  const double mean = 1 / report.metrics.loss_den, norm = report.grad_norm;
  if (!std::isfinite(norm)) return data_loss("the gradient is not a number; nothing was updated");
  nn::AdamStep adam;
  adam.step = state_.updates + 1;
  adam.learning_rate = report.learning_rate;
  adam.weight_decay = options_.weight_decay;
  adam.grad_scale = mean * std::min(1.0, options_.max_grad_norm / (norm + 1e-6));
  LEVADA_RETURN_IF_ERROR(nn::guarded("the optimizer's step", [&] {
    ops_->adamw(adam, state_.gradients_flat, state_.masters, state_.first_moment, state_.second_moment,
                state_.weights_flat);
  }));
  ++state_.updates;
  report.updated = true;
  return {};
}

Result<StepReport> Trainer::step(std::span<const Sample> samples, const Confirm& confirm) {
  if (static_cast<std::int64_t>(samples.size()) != options_.samples_per_step()) {
    return invalid_argument("a step takes " + std::to_string(options_.samples_per_step()) + " samples, got " +
                                std::to_string(samples.size()),
                            "samples");
  }
  StepReport report;
  LEVADA_RETURN_IF_ERROR(nn::guarded("clearing gradients", [&] { state_.gradients_flat.zero_(); }));
  LEVADA_RETURN_IF_ERROR(run_micro_steps(samples, true, report.metrics));
  LEVADA_RETURN_IF_ERROR(sum_over_ranks(report.metrics, true));
  if (report.metrics.blocks > 0) {
    LEVADA_ASSIGN_OR_RETURN(report.grad_norm, gradient_norm(1 / report.metrics.loss_den));
  }
  if (confirm) {
    LEVADA_ASSIGN_OR_RETURN(const bool confirmed, confirm());
    report.given_up = !confirmed;
    if (report.given_up) return report;
  }
  report.step = state_.steps + 1;
  report.learning_rate = schedule_.rate(state_.steps);
  if (report.metrics.unlearnable_samples > 0) {
    LEVADA_LOG_WARNING("train: step ", report.step, ": ", report.metrics.unlearnable_samples, " of ",
                       report.metrics.samples, " samples have no two adjacent supervised tokens: nothing to learn");
  }
  if (report.metrics.blocks > 0) LEVADA_RETURN_IF_ERROR(update(report));
  ++state_.steps;
  return report;
}

Result<Metrics> Trainer::evaluate(std::span<const Sample> samples) {
  Metrics metrics;
  LEVADA_RETURN_IF_ERROR(run_micro_steps(samples, false, metrics));
  LEVADA_RETURN_IF_ERROR(sum_over_ranks(metrics, false));
  return metrics;
}

Result<std::filesystem::path> Trainer::save() {
  if (options_.output_dir.empty()) return invalid_argument("is needed for checkpoints", "output_dir");
  Result<std::filesystem::path> saved = std::filesystem::path();
  LEVADA_RETURN_IF_ERROR(nn::guarded("saving", [&] { saved = save_checkpoint(contract(), state_); }));
  return saved;
}

Status Trainer::export_to(const std::filesystem::path& folder) {
  Status written;
  LEVADA_RETURN_IF_ERROR(nn::guarded("exporting", [&] { written = write_export(folder, config_, state_); }));
  return written;
}

Result<std::unique_ptr<nn::DraftOps>> make_ops(const std::string& device) {
  if (device != "cuda") return nn::make_cpu_draft_ops();
  LEVADA_RETURN_IF_ERROR(nn::load_torch_cuda());
  return nn::make_cuda_draft_ops(at::Device(at::kCUDA, 0));
}

Result<std::unique_ptr<Trainer>> make(const Options& options, model::DraftConfig config,
                                      std::shared_ptr<const FrozenTables> tables, Collective* collective) {
  LEVADA_CHECK(tables != nullptr, "a trainer needs the target's tables");
  config.dtype = options.torch_dtype;
  LEVADA_RETURN_IF_ERROR(check_options(options));
  LEVADA_RETURN_IF_ERROR(check(config, "draft"));
  auto tensors = std::static_pointer_cast<const FrozenTensors>(std::move(tables));
  LEVADA_RETURN_IF_ERROR(check_fit(config, options, *tensors));
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<nn::DraftOps> ops, make_ops(options.device));
  std::unique_ptr<Trainer> trainer;
  LEVADA_RETURN_IF_ERROR(nn::guarded("making a trainer", [&] {
    at::set_num_threads(options.threads > 0 ? static_cast<int>(options.threads)
                                            : std::max(1, available_cores() / world_of(collective)));
    trainer = std::make_unique<Trainer>(options, config, std::move(tensors), collective, std::move(ops));
  }));
  return trainer;
}

}  // namespace

Metrics& Metrics::operator+=(const Metrics& o) {
  loss_num += o.loss_num;
  loss_den += o.loss_den;
  hits += o.hits;
  slots += o.slots;
  accepted_prefix += o.accepted_prefix;
  blocks += o.blocks;
  samples += o.samples;
  unlearnable_samples += o.unlearnable_samples;
  return *this;
}

Result<std::unique_ptr<DflashTrainer>> DflashTrainer::create(const Options& options, const model::DraftConfig& config,
                                                             std::shared_ptr<const FrozenTables> tables,
                                                             Collective* collective) {
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer, make(options, config, std::move(tables), collective));
  LEVADA_RETURN_IF_ERROR(nn::guarded("drawing weights", [&] { trainer->draw_weights(); }));
  return std::unique_ptr<DflashTrainer>(std::move(trainer));
}

Result<std::unique_ptr<DflashTrainer>> DflashTrainer::resume(const std::filesystem::path& checkpoint,
                                                             const Options& options, const model::DraftConfig& config,
                                                             std::shared_ptr<const FrozenTables> tables,
                                                             Collective* collective) {
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer, make(options, config, std::move(tables), collective));
  Status loaded;
  LEVADA_RETURN_IF_ERROR(
      nn::guarded("resuming", [&] { loaded = load_checkpoint(checkpoint, trainer->contract(), trainer->state()); }));
  LEVADA_RETURN_IF_ERROR(loaded);
  return std::unique_ptr<DflashTrainer>(std::move(trainer));
}

}  // namespace levada::train
