// What: the sections of a fan-out recipe as structs. Names and defaults are SpecForge's; `levada:` is ours.
// Owner: FanoutRecipe (recipe/fanout_recipe.h) holds them.
// Thread: start-up only.
// Invariant: each default is written here and nowhere else; tables and help texts stand in sections.cc, the fields that
// load but have no effect here in unused_fields.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

namespace levada::recipe {

struct ModelSection {
  std::string target_model_path;  // required
  std::optional<std::string> draft_model_config;
  std::optional<std::string> draft_checkpoint_path;  // start from these weights
  std::optional<std::int64_t> draft_num_hidden_layers;
  std::optional<std::int64_t> draft_block_size;
  std::optional<std::int64_t> mask_token_id;
  std::string torch_dtype = "bfloat16";
  std::optional<std::int64_t> sglang_context_length, sglang_max_running_requests, sglang_max_total_tokens,
      sglang_page_size;
  double sglang_mem_fraction_static = 0.4;
};

struct DataSection {
  std::optional<std::string> train_data_path, prompts_path, hidden_states_path;
  std::int64_t max_length = 2048;
  std::int64_t max_prompts = 0;  // 0: all

  // The file of prompts, under either of its names. REQUIRES: a checked recipe.
  const std::string& prompts() const { return train_data_path ? *train_data_path : *prompts_path; }
};

struct TrainingSection {
  std::string strategy = "eagle3";
  std::int64_t num_epochs = 1;
  std::optional<std::int64_t> max_steps, total_steps;
  std::int64_t batch_size = 1;
  std::int64_t accumulation_steps = 1;
  double learning_rate = 1e-4;
  std::string lr_scheduler = "cosine";
  double warmup_ratio = 0.015;
  double max_grad_norm = 0.5;
  std::int64_t num_anchors = 512;
  std::optional<double> loss_decay_gamma;
  std::int64_t objective_chunk_blocks = 128;
  std::string loss_type = "dflash";
  double dpace_alpha = 0.5;
  std::int64_t save_interval = 0;
  std::int64_t log_interval = 50;
  std::int64_t max_checkpoints = 0;
  std::optional<std::string> resume_from;
  std::string role = "auto";
  std::int64_t seed = 42;
  std::optional<std::int64_t> prompt_seed;

  std::int64_t quantum() const { return batch_size * accumulation_steps; }
};

struct RuntimeSection {
  std::int64_t producer_lease = 8;
  std::int64_t producer_concurrency = 1;
  std::int64_t in_flight_high_watermark = 256, in_flight_low_watermark = 192;
  std::optional<std::int64_t> resident_high_watermark_bytes, resident_low_watermark_bytes,
      feature_store_max_resident_bytes;
};

struct TrainerSection {
  std::int64_t nnodes = 1;
  std::int64_t nproc_per_node = 1;
};

struct DisaggregatedSection {
  std::string control_dir;  // required
  std::optional<std::string> consumer_state_dir;
  std::string backend;  // required
  std::optional<std::string> store_id;
  std::vector<std::string> server_urls;
  std::optional<double> idle_timeout_s, peer_wait_timeout_s, producer_hold_s;
  double shutdown_grace_s = 30;
};

struct WindowedFanoutSection {
  std::int64_t window_lookbehind = 2;
  std::int64_t window_lookahead = 40;
  std::int64_t max_prefetch_per_consumer = 8;
  std::int64_t max_outstanding_per_consumer = 8;
  std::int64_t max_live_refs = 48;
  std::int64_t max_live_bytes = 0;  // required
  std::int64_t capture_reservation_bytes = 128 << 20;
  std::int64_t capture_max_sample_bytes = 128 << 20;
  std::int64_t capture_batch_size = 8;
  double capture_batch_wait_s = 0.002;
  double registry_poll_s = 0.01;
  std::int64_t max_capture_retries = 2;
  double capture_retry_backoff_s = 0.05;
  double consumer_registration_timeout_s = 300;
  double consumer_heartbeat_timeout_s = 30;
  double consumer_heartbeat_interval_s = 5;
  double consumer_idle_timeout_s = 1800;
  std::int64_t consumer_prefetch_batches = 1;
  // Ours from here.
  std::string bind = "127.0.0.1";
  std::int64_t port = 0;
  std::string auth_token_env = "SGLANG_SPEC_CAPTURE_TOKEN";
  double lease_ttl_s = 30;
  double read_margin_s = 5;
  double detach_grace_s = 300;
  double capture_timeout_s = 300;
  std::int64_t drain_tries = 40;
  double drain_interval_s = 0.5;
  std::string on_consumer_failure = "continue";
  std::int64_t skip_failed = 0;
  std::int64_t max_lead = 0;
};

// One trainer. Its recipe fields are projected onto the run's model and training sections.
struct Consumer {
  std::string consumer_id;
  ModelSection model;
  TrainingSection training;
  std::optional<std::int64_t> cuda_visible_device;
  std::int64_t window_lookbehind = 0, window_lookahead = 0, max_prefetch = 0;  // from the fan-out section
  std::int64_t nproc_per_node = 1;

  std::int64_t quantum() const { return training.quantum() * nproc_per_node; }
};

struct CaptureServer {
  std::int64_t port = 0;  // required
  std::vector<std::string> cuda_visible_devices;
  std::int64_t tp_size = 1;
  std::optional<double> mem_fraction_static;
  double startup_timeout_s = 1800;
  std::vector<std::string> extra_args;
  std::vector<std::string> env;  // "NAME=value"
};

struct ManagedLocalSection {
  std::vector<std::string> trainer_cuda_visible_devices;
  double shutdown_grace_s = 30;
  std::vector<CaptureServer> capture_servers;
};

// What SpecForge has no name for.
struct LevadaSection {
  std::string device = "auto";
  std::optional<std::int64_t> answer_max_tokens;
  std::optional<std::int64_t> capture_arena_bytes;
  std::string transport = "auto";
  bool share_gpus = false;
  std::int64_t server_threads = 0, trainer_threads = 0;
  std::int64_t max_restarts = 0;
  std::vector<std::string> target_layer_ids;
};

// Training without end on the served traffic; docs/recipes.md, "The flywheel". A recipe without the section has none.
struct FlywheelSection {
  double rate = 1;                                        // share of the conversations that are kept
  std::int64_t spool_bytes = 64 << 20;                    // of them on disk
  std::int64_t samples_per_round = 64, min_samples = 32;  // at most; new ones at least
  double held_out_share = 0.1;
  std::int64_t held_out_prompts = 16, eval_max_tokens = 64;
  std::optional<std::string> eval_prompts;  // more prompts to measure on, told separately
  double min_gain = 0.02;                   // of acceptance length, for a promotion
  double min_speed = 0;                     // share of the served drafter's tokens a second, for a promotion
  std::int64_t rounds = 0, stop_after = 0;  // 0: for ever
  double deadline_s = 0;                    // 0: none
  std::int64_t keep_rounds = 2;
  // Self-made traffic whenever too few samples are new; without questions there is none.
  std::optional<std::int64_t> questions, connections, batch, max_question_tokens, max_answer_tokens;
  // The folder of a round: set by `levada flywheel` for the run that it starts, never by people.
  std::optional<std::string> round;
};

// Adds a section's options under `path`, the dotted name of the section.
void describe(OptionTable& table, const std::string& path, ModelSection& section);
void describe(OptionTable& table, const std::string& path, DataSection& section);
void describe(OptionTable& table, const std::string& path, TrainingSection& section);
void describe(OptionTable& table, const std::string& path, RuntimeSection& section);
void describe(OptionTable& table, const std::string& path, TrainerSection& section);
void describe(OptionTable& table, const std::string& path, DisaggregatedSection& section);
void describe(OptionTable& table, const std::string& path, WindowedFanoutSection& section);
void describe(OptionTable& table, const std::string& path, Consumer& consumer);
void describe(OptionTable& table, const std::string& path, CaptureServer& server);
void describe(OptionTable& table, const std::string& path, ManagedLocalSection& section);
void describe(OptionTable& table, const std::string& path, LevadaSection& section);
void describe(OptionTable& table, const std::string& path, FlywheelSection& section);

}  // namespace levada::recipe
