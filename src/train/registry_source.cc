#include "train/registry_source.h"

namespace levada::train {

Result<std::vector<Sample>> RegistrySource::next(std::int64_t count) {
  LEVADA_ASSIGN_OR_RETURN(const std::vector<const consumer::ReadSample*> read, feed_.next(count));
  std::vector<Sample> samples;
  for (const consumer::ReadSample* one : read) {
    Sample sample;
    sample.sample_id = one->sample_id;
    sample.epoch = static_cast<std::uint32_t>(one->epoch);
    sample.input_ids = one->input_ids;
    sample.loss_mask = one->loss_mask;
    sample.hidden_states = one->hidden_states;
    sample.features_on_device = one->features_on_device;
    samples.push_back(sample);
  }
  return samples;
}

Status RegistrySource::checkpointed(std::int64_t step, const std::filesystem::path& folder) {
  return feed_.checkpointed(step, folder.string());
}

}  // namespace levada::train
