#include "recipe/unused_fields.h"

#include <sstream>

namespace levada::recipe {

void UnusedFields::add(OptionTable& table, const std::string& section, const char* names) {
  table.begin_section(section);
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    Field& field = fields_.emplace_back();
    field.path = section + "." + name;
    table.add(name, &field.value, "no effect here");
  }
}

void UnusedFields::add_lists(OptionTable& table, const std::string& section, const char* names) {
  table.begin_section(section);
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    list_paths_.push_back(section + "." + name);
    table.add(name, &lists_.emplace_back(), "no effect here");
  }
}

void UnusedFields::add_fixed(OptionTable& table, const std::string& section, const char* name, const char* only) {
  add(table, section, name);
  fields_.back().only = only;
}

void UnusedFields::describe(OptionTable& table) {
  add(table, "model",
      "trust_remote_code use_liger_kernel embedding_key lm_head_key load_target_embedding tokenizer_pad_token_id "
      "cache_dir sglang_attention_backend sglang_disable_radix_cache sglang_enable_nccl_nvls sglang_enable_symm_mem "
      "sglang_enable_torch_compile sglang_moe_a2a_backend sglang_moe_runner_backend sglang_fp4_gemm_runner_backend "
      "sglang_mamba_radix_cache_strategy sglang_max_mamba_cache_size sglang_swa_full_tokens_ratio "
      "sglang_mamba_full_memory_ratio");
  add_lists(table, "model", "aux_hidden_state_layer_ids sglang_extra_args");
  add_fixed(table, "model", "target_backend", "sglang");
  add_fixed(table, "model", "input_modality", "text");
  add_fixed(table, "model", "shard_target_output", "false");
  add_fixed(table, "model", "vocab_mapping_path", "");
  add_fixed(table, "model", "sglang_quantization", "");
  add_fixed(table, "model", "sglang_ep_size", "1");
  add_fixed(table, "model", "sglang_dp_size", "1");
  add_fixed(table, "model", "sglang_enable_dp_attention", "false");
  add_fixed(table, "model", "sglang_enable_dp_lm_head", "false");
  add(table, "data",
      "chat_template is_preformatted train_only_last_turn build_dataset_num_proc dataloader_num_workers cache_dir "
      "cache_key");
  add_fixed(table, "data", "eval_hidden_states_path", "");
  add_fixed(table, "data", "eval_data_path", "");
  add(table, "training",
      "fsdp_sharding optimizer_cpu_offload ttt_length attention_backend dist_timeout lk_loss_type kl_scale kl_decay "
      "lambda_base_start lambda_base_decay_ratio dspark_ce_loss_alpha dspark_l1_loss_alpha "
      "dspark_confidence_head_alpha num_depths down_sample_ratio down_sample_ratio_min norm_before_residual "
      "compact_teacher compact_teacher_chunk_size dflash_teacher_metrics "
      "eval_interval");
  add_fixed(table, "training", "tp_size", "1");
  add_fixed(table, "training", "sp_ulysses_size", "1");
  add_fixed(table, "training", "sp_ring_size", "1");
  add(table, "runtime", "feature_store_max_quarantined_bytes");
  add(table, "tracking",
      "report_to wandb_project wandb_name wandb_key wandb_offline wandb_dir swanlab_project swanlab_name swanlab_key "
      "mlflow_tracking_uri mlflow_experiment_name mlflow_run_name");
  add(table, "profiling", "enabled start_step num_steps record_shapes");
  add(table, "deployment.trainer", "node_rank master_addr master_port");
  add(table, "deployment.disaggregated",
      "inbox_server_url store_root mooncake_metadata_server mooncake_master_server_addr mooncake_local_hostname "
      "mooncake_protocol mooncake_rdma_devices producer_segment_size client_buffer_size server_capture "
      "receive_buffers receive_pool_bytes async_ack");
  add(table, "deployment.disaggregated.managed_local.mooncake",
      "rpc_port metadata_port metrics_port local_hostname protocol global_segment local_buffer global_segment_size "
      "local_buffer_size startup_timeout startup_timeout_s probe_timeout_s default_kv_lease_ttl_ms arena_bytes");
}

void UnusedFields::describe_server(OptionTable& table, const std::string& path) {
  add(table, path, "attention_backend gpu_put probe_timeout_s");
}

Status UnusedFields::check() const {
  for (const Field& field : fields_) {
    if (!field.only || !field.value || *field.value == *field.only) continue;
    const std::string remedy = field.only->empty() ? "must be left out" : "must be " + *field.only;
    return invalid_argument(remedy + ", got \"" + *field.value + "\": levada cannot do otherwise", field.path);
  }
  return {};
}

std::vector<std::string> UnusedFields::mentioned(const Recipe& recipe) const {
  std::vector<std::string> paths;
  for (const Field& field : fields_) {
    if (!field.only && recipe.names(field.path)) paths.push_back(field.path);
  }
  for (const std::string& path : list_paths_) {
    if (recipe.names(path)) paths.push_back(path);
  }
  return paths;
}

}  // namespace levada::recipe
