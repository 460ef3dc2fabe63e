#include "recipe/sections.h"

namespace levada::recipe {
namespace {

constexpr double kMaxCount = 1e12;
constexpr double kMaxBytes = 1LL << 50;
constexpr double kMaxSeconds = 1e7;
constexpr double kMaxSeed = 9e18;

}  // namespace

void describe(OptionTable& table, const std::string& path, ModelSection& section) {
  table.begin_section(path);
  table.add("target_model_path", &section.target_model_path, "the model to capture from: smollm2, a GGUF or a folder");
  table.add("draft_model_config", &section.draft_model_config, "a draft's config.json");
  table.add("draft_checkpoint_path", &section.draft_checkpoint_path, "an exported draft to start from, weights only");
  table.add("draft_num_hidden_layers", &section.draft_num_hidden_layers, "layers of the draft").range(1, 64);
  table.add("draft_block_size", &section.draft_block_size, "tokens drafted at once").range(2, 256);
  table.add("mask_token_id", &section.mask_token_id, "token whose embedding stands for 'not yet known'").range(0, 1e8);
  table.add("torch_dtype", &section.torch_dtype, "of captured features and of the draft")
      .choices({"bfloat16", "float16", "float32"});
  table.add("sglang_context_length", &section.sglang_context_length, "longest prompt the server takes")
      .range(1, kMaxCount);
  table.add("sglang_max_running_requests", &section.sglang_max_running_requests, "requests in a batch").range(1, 65536);
  table.add("sglang_max_total_tokens", &section.sglang_max_total_tokens, "room of the KV pool").range(1, kMaxCount);
  table.add("sglang_page_size", &section.sglang_page_size, "tokens of a KV page").range(1, 1024);
  table.add("sglang_mem_fraction_static", &section.sglang_mem_fraction_static, "memory the KV pool may take")
      .range(0.01, 1);
}

void describe(OptionTable& table, const std::string& path, DataSection& section) {
  table.begin_section(path);
  table.add("train_data_path", &section.train_data_path, "prompts, JSON or JSONL");
  table.add("prompts_path", &section.prompts_path, "the same");
  table.add("hidden_states_path", &section.hidden_states_path, "features captured earlier");
  table.add("max_length", &section.max_length, "longer samples are cut").range(2, 1 << 24);
  table.add("max_prompts", &section.max_prompts, "prompts of an epoch; 0: all").range(0, kMaxCount);
}

void describe(OptionTable& table, const std::string& path, TrainingSection& section) {
  table.begin_section(path);
  table.add("strategy", &section.strategy, "what is trained")
      .choices({"dflash", "domino", "dspark", "eagle3", "p-eagle"});
  table.add("num_epochs", &section.num_epochs, "passes over the prompts").range(1, 1e6);
  table.add("max_steps", &section.max_steps, "optimizer steps to make").range(1, kMaxCount);
  table.add("total_steps", &section.total_steps, "length of the learning-rate schedule").range(1, kMaxCount);
  table.add("batch_size", &section.batch_size, "samples of a micro-step").range(1, 4096);
  table.add("accumulation_steps", &section.accumulation_steps, "micro-steps of an optimizer step").range(1, 4096);
  table.add("learning_rate", &section.learning_rate, "peak learning rate").range(0, 10);
  table.add("lr_scheduler", &section.lr_scheduler, "course of the learning rate").choices({"cosine", "constant"});
  table.add("warmup_ratio", &section.warmup_ratio, "share of the steps that warm up").range(0, 1);
  table.add("max_grad_norm", &section.max_grad_norm, "gradients are clipped to it").range(0, 1e9);
  table.add("num_anchors", &section.num_anchors, "blocks drawn from a sample").range(1, 65536);
  table.add("loss_decay_gamma", &section.loss_decay_gamma, "decay of the loss within a block").range(0, 1e6);
  table.add("objective_chunk_blocks", &section.objective_chunk_blocks, "blocks whose logits exist at once")
      .range(0, 65536);
  table.add("loss_type", &section.loss_type, "the objective")
      .choices({"dflash", "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"});
  table.add("dpace_alpha", &section.dpace_alpha, "smoothing of D-PACE").range(0, 1);
  table.add("save_interval", &section.save_interval, "steps between checkpoints; 0: at the end").range(0, kMaxCount);
  table.add("log_interval", &section.log_interval, "steps between log lines").range(1, kMaxCount);
  table.add("max_checkpoints", &section.max_checkpoints, "newest checkpoints kept; 0: all").range(0, 1e6);
  table.add("resume_from", &section.resume_from, "a checkpoint to go on from");
  table.add("role", &section.role, "which role this process plays").choices({"auto", "all", "producer", "consumer"});
  table.add("seed", &section.seed, "of weights, anchors and masks").range(0, kMaxSeed);
  table.add("prompt_seed", &section.prompt_seed, "of the order of prompts").range(0, kMaxSeed);
}

void describe(OptionTable& table, const std::string& path, RuntimeSection& section) {
  table.begin_section(path);
  table.add("producer_lease", &section.producer_lease, "prompts a worker takes at once").range(1, 4096);
  table.add("producer_concurrency", &section.producer_concurrency, "capture calls in flight per server").range(1, 256);
  table.add("in_flight_high_watermark", &section.in_flight_high_watermark, "refs at which the producer pauses")
      .range(1, kMaxCount);
  table.add("in_flight_low_watermark", &section.in_flight_low_watermark, "refs at which it goes on")
      .range(0, kMaxCount);
  table.add("resident_high_watermark_bytes", &section.resident_high_watermark_bytes, "bytes at which it pauses")
      .range(1, kMaxBytes);
  table.add("resident_low_watermark_bytes", &section.resident_low_watermark_bytes, "bytes at which it goes on")
      .range(0, kMaxBytes);
  table.add("feature_store_max_resident_bytes", &section.feature_store_max_resident_bytes, "bytes never exceeded")
      .range(1, kMaxBytes);
}

void describe(OptionTable& table, const std::string& path, TrainerSection& section) {
  table.begin_section(path);
  table.add("nnodes", &section.nnodes, "machines of a trainer").range(1, 1024);
  table.add("nproc_per_node", &section.nproc_per_node, "processes of a trainer on each machine").range(1, 64);
}

void describe(OptionTable& table, const std::string& path, DisaggregatedSection& section) {
  table.begin_section(path);
  table.add("control_dir", &section.control_dir, "folder of the registry and of sockets");
  table.add("consumer_state_dir", &section.consumer_state_dir, "folder of the consumers' own state");
  table.add("backend", &section.backend, "where features live; mooncake is levada's own store")
      .choices({"mooncake", "shared_dir"});
  table.add("store_id", &section.store_id, "namespace of the objects; the run's id");
  table.add("server_urls", &section.server_urls, "capture servers that run already");
  table.add("idle_timeout_s", &section.idle_timeout_s, "a consumer gives up after so long without a sample")
      .range(0, kMaxSeconds);
  table.add("peer_wait_timeout_s", &section.peer_wait_timeout_s, "a role waits so long for the others")
      .range(0, kMaxSeconds);
  table.add("producer_hold_s", &section.producer_hold_s, "the producer waits so long for consumers to end")
      .range(0, kMaxSeconds);
  table.add("shutdown_grace_s", &section.shutdown_grace_s, "between SIGTERM and SIGKILL").range(0, 3600);
}

void describe(OptionTable& table, const std::string& path, WindowedFanoutSection& section) {
  table.begin_section(path);
  table.add("window_lookbehind", &section.window_lookbehind, "positions kept behind a cursor").range(0, 1e6);
  table.add("window_lookahead", &section.window_lookahead, "positions of interest ahead of a cursor").range(0, 1e6);
  table.add("max_prefetch_per_consumer", &section.max_prefetch_per_consumer, "captures under way for a consumer")
      .range(0, 1e6);
  table.add("max_outstanding_per_consumer", &section.max_outstanding_per_consumer, "samples a consumer may hold")
      .range(1, 1e6);
  table.add("max_live_refs", &section.max_live_refs, "samples that may exist at once").range(1, 1e9);
  table.add("max_live_bytes", &section.max_live_bytes, "bytes that may exist at once").range(1, kMaxBytes);
  table.add("capture_reservation_bytes", &section.capture_reservation_bytes, "most bytes of a sample")
      .range(1, kMaxBytes);
  table.add("capture_max_sample_bytes", &section.capture_max_sample_bytes, "most bytes a server takes for a sample")
      .range(1, kMaxBytes);
  table.add("capture_batch_size", &section.capture_batch_size, "prompts of one capture call").range(1, 4096);
  table.add("capture_batch_wait_s", &section.capture_batch_wait_s, "wait for a call to fill").range(0, 60);
  table.add("registry_poll_s", &section.registry_poll_s, "step of a long poll").range(0.0001, 60);
  table.add("max_capture_retries", &section.max_capture_retries, "tries after the first").range(0, 1000);
  table.add("capture_retry_backoff_s", &section.capture_retry_backoff_s, "wait before a retry").range(0, 3600);
  table.add("consumer_registration_timeout_s", &section.consumer_registration_timeout_s, "a later consumer sits out")
      .range(0.1, kMaxSeconds);
  table.add("consumer_heartbeat_timeout_s", &section.consumer_heartbeat_timeout_s, "silence that ends a session")
      .range(0.1, kMaxSeconds);
  table.add("consumer_heartbeat_interval_s", &section.consumer_heartbeat_interval_s, "between two heartbeats")
      .range(0.01, kMaxSeconds);
  table.add("consumer_idle_timeout_s", &section.consumer_idle_timeout_s, "a consumer gives up after so long")
      .range(0.1, kMaxSeconds);
  table.add("consumer_prefetch_batches", &section.consumer_prefetch_batches, "steps read ahead").range(0, 1024);
  table.add("bind", &section.bind, "address of the registry");
  table.add("port", &section.port, "port of the registry; 0: any free one").range(0, 65535);
  table.add("auth_token_env", &section.auth_token_env, "environment variable of the capture token");
  table.add("lease_ttl_s", &section.lease_ttl_s, "a read lease ends after so long").range(0.1, kMaxSeconds);
  table.add("read_margin_s", &section.read_margin_s, "a reader stops so long before").range(0, kMaxSeconds);
  table.add("detach_grace_s", &section.detach_grace_s, "an ended session keeps its place so long")
      .range(0, kMaxSeconds);
  table.add("capture_timeout_s", &section.capture_timeout_s, "a capture call ends after so long")
      .range(0.1, kMaxSeconds);
  table.add("drain_tries", &section.drain_tries, "tries to remove an object").range(1, 1e6);
  table.add("drain_interval_s", &section.drain_interval_s, "between two of them").range(0.001, 3600);
  table.add("on_consumer_failure", &section.on_consumer_failure, "what the others do")
      .choices({"continue", "abort_all"});
  table.add("skip_failed", &section.skip_failed, "samples that may be left out as impossible to capture; 0: none")
      .range(0, 1e9);
  table.add("max_lead", &section.max_lead, "a leader waits this far ahead of the slowest; 0: never").range(0, 1e9);
}

void describe(OptionTable& table, const std::string& path, Consumer& consumer) {
  TrainingSection& training = consumer.training;
  table.begin_section(path);
  table.add("consumer_id", &consumer.consumer_id, "its name and its folder's");
  table.add("seed", &training.seed, "of weights, anchors and masks").range(0, kMaxSeed);
  table.add("loss_type", &training.loss_type, "the objective")
      .choices({"dflash", "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"});
  table.add("dpace_alpha", &training.dpace_alpha, "smoothing of D-PACE").range(0, 1);
  table.add("num_anchors", &training.num_anchors, "blocks drawn from a sample").range(1, 65536);
  table.add("learning_rate", &training.learning_rate, "peak learning rate").range(0, 10);
  table.add("warmup_ratio", &training.warmup_ratio, "share of the steps that warm up").range(0, 1);
  table.add("loss_decay_gamma", &training.loss_decay_gamma, "decay of the loss within a block").range(0, 1e6);
  table.add("draft_block_size", &consumer.model.draft_block_size, "tokens drafted at once").range(2, 256);
  table.add("cuda_visible_device", &consumer.cuda_visible_device, "its GPU").range(0, 1024);
  table.add("resume_from", &training.resume_from, "a checkpoint to go on from");
  table.add("window_lookbehind", &consumer.window_lookbehind, "positions kept behind its cursor").range(0, 1e6);
  table.add("window_lookahead", &consumer.window_lookahead, "positions of interest ahead").range(0, 1e6);
  table.add("max_prefetch", &consumer.max_prefetch, "captures under way for it").range(0, 1e6);
  table.add("nproc_per_node", &consumer.nproc_per_node, "its processes").range(1, 64);
  describe(table, path + ".overrides.model", consumer.model);
  describe(table, path + ".overrides.training", training);
}

void describe(OptionTable& table, const std::string& path, CaptureServer& server) {
  table.begin_section(path);
  table.add("port", &server.port, "port of the server").range(1, 65535);
  table.add("cuda_visible_devices", &server.cuda_visible_devices, "its GPUs");
  table.add("tp_size", &server.tp_size, "GPUs of a model").range(1, 64);
  table.add("mem_fraction_static", &server.mem_fraction_static, "memory the KV pool may take").range(0.01, 1);
  table.add("startup_timeout_s", &server.startup_timeout_s, "until it must answer").range(1, kMaxSeconds);
  table.add("extra_args", &server.extra_args, "more flags of levada serve");
  table.add("env", &server.env, "more environment");
}

void describe(OptionTable& table, const std::string& path, ManagedLocalSection& section) {
  table.begin_section(path);
  table.add("trainer_cuda_visible_devices", &section.trainer_cuda_visible_devices, "a GPU for each consumer");
  table.add("shutdown_grace_s", &section.shutdown_grace_s, "between SIGTERM and SIGKILL").range(0, 3600);
}

void describe(OptionTable& table, const std::string& path, LevadaSection& section) {
  table.begin_section(path);
  table.add("device", &section.device, "where target and drafts run; auto: on GPUs if the recipe names any")
      .choices({"auto", "cpu", "cuda"});
  table
      .add("answer_max_tokens", &section.answer_max_tokens,
           "longest answer of the target to a raw prompt; null: the producer's default")
      .range(2, 1 << 20);
  table.add("capture_arena_bytes", &section.capture_arena_bytes, "room for features; null: what the limits need")
      .range(1 << 20, kMaxBytes);
  table.add("transport", &section.transport, "how trainers read features; nvlink: they never leave the GPU")
      .choices({"auto", "shm", "tcp", "nvlink", "ucx"});
  table.add("share_gpus", &section.share_gpus, "servers and trainers may name the same GPU");
  table.add("server_threads", &section.server_threads, "CPU threads of a capture server; 0: all").range(0, 1024);
  table.add("trainer_threads", &section.trainer_threads, "CPU threads of a trainer; 0: all").range(0, 1024);
  table.add("max_restarts", &section.max_restarts, "how often `levada up` starts a role again that died")
      .range(0, 1000);
  table.add("target_layer_ids", &section.target_layer_ids, "target layers a draft reads; empty: the draft's config");
}

void describe(OptionTable& table, const std::string& path, FlywheelSection& section) {
  table.begin_section(path);
  table.add("rate", &section.rate, "share of the served conversations that are kept for training").range(0, 1);
  table.add("spool_bytes", &section.spool_bytes, "of them on disk; the oldest go").range(65536, kMaxBytes);
  table.add("samples_per_round", &section.samples_per_round, "samples a round trains on, at most").range(1, 1e7);
  table.add("min_samples", &section.min_samples, "new samples that a round waits for").range(1, 1e7);
  table.add("held_out_share", &section.held_out_share, "share of the samples that is never trained on")
      .range(0.001, 0.9);
  table.add("held_out_prompts", &section.held_out_prompts, "of them, so many are measured on").range(2, 4096);
  table.add("eval_max_tokens", &section.eval_max_tokens, "of an answer that is measured").range(8, 65536);
  table.add("eval_prompts", &section.eval_prompts, "a prompts file to measure on as well, told separately");
  table.add("rounds", &section.rounds, "rounds in all; 0: for ever").range(0, 1e9);
  table.add("stop_after", &section.stop_after, "end after so many rounds in a row without a promotion; 0: never")
      .range(0, 1e9);
  table.add("deadline_s", &section.deadline_s, "no round begins later than this after the start; 0: none")
      .range(0, kMaxSeconds);
  table.add("keep_rounds", &section.keep_rounds, "folders of past rounds that are kept").range(1, 1000);
  table.add("round", &section.round, "set by `levada flywheel` for the runs it starts");
  table.begin_section(path + ".promote");
  table.add("min_gain", &section.min_gain, "acceptance length that a draft must win over the one in service")
      .range(0, 100);
  table
      .add("min_speed", &section.min_speed,
           "tokens a second that it must reach with all its drafts verified, as a share of those of the one in "
           "service; 0: any")
      .range(0, 100);
  table.begin_section(path + ".synthesize");
  table.add("questions", &section.questions, "that the target asks itself when too few samples are new").range(1, 1e8);
  table.add("connections", &section.connections, "requests at a time").range(1, 1024);
  table.add("batch", &section.batch, "questions of one request").range(1, 256);
  table.add("max_question_tokens", &section.max_question_tokens, "longest question").range(1, 4096);
  table.add("max_answer_tokens", &section.max_answer_tokens, "longest answer").range(1, 65536);
}

}  // namespace levada::recipe
