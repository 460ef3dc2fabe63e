#include "train/consumer_trainer.h"

namespace levada::train {

std::filesystem::path latest_checkpoint(const Options& options) {
  return std::filesystem::path(options.output_dir) / (options.run_id + "-latest");
}

Result<std::unique_ptr<DflashTrainer>> open_trainer(const ConsumerRunRequest& request, const Options& options) {
  LEVADA_ASSIGN_OR_RETURN(auto tables, load_frozen_tables(request.target_model, options.torch_dtype));
  std::error_code error;
  if (std::filesystem::exists(latest_checkpoint(options), error)) {
    return DflashTrainer::resume(latest_checkpoint(options), options, request.draft, tables, request.ranks);
  }
  LEVADA_ASSIGN_OR_RETURN(auto trainer, DflashTrainer::create(options, request.draft, tables, request.ranks));
  if (!request.init_from.empty()) LEVADA_RETURN_IF_ERROR(trainer->load_weights(request.init_from));
  return trainer;
}

}  // namespace levada::train
