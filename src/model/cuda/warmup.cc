#include "model/cuda/warmup.h"

#include <cuda_runtime_api.h>

#include <fstream>

#include "base/log.h"
#include "model/cuda/build_id.h"
#include "model/cuda/decode_graphs.h"

namespace levada::model {
namespace {

constexpr const char* kPlans = "linear-plans";
constexpr std::int64_t kChunkRows[] = {512, 1024, 2048, 4096, 8192, 16384};

std::string driver() {
  std::string version = "?";
  std::ifstream("/sys/module/nvidia/version") >> version;
  int api = 0, runtime = 0;
  cudaDriverGetVersion(&api);
  cudaRuntimeGetVersion(&runtime);
  return version + ", API " + std::to_string(api) + ", runtime " + std::to_string(runtime);
}

// Whether the manifest was there and its plans are in use.
bool take_manifest(const std::filesystem::path& file, const WarmupKey& key, kernels::cuda::Linears& linears) {
  const Result<WarmupParts> parts = read_manifest(file, key);
  Status taken = parts.status();
  if (taken.ok()) {
    const auto plans = parts->find(kPlans);
    taken = plans == parts->end() ? data_loss("it holds no plans") : linears.load_plans(plans->second);
  }
  if (!taken.ok() && taken.code() != StatusCode::kNotFound) {
    LEVADA_LOG_WARNING("warm-up manifest ", file.string(), " is not used and will be replaced: ", taken.message());
  }
  return taken.ok();
}

}  // namespace

WarmupKey warmup_key(const ModelConfig& config, DType dtype, const std::string& gpu) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  return {build_id(), gpu, driver(),
          config.architecture + " " + std::string(to_string(dtype)) + ", hidden " + number(config.hidden) + ", heads " +
              number(config.heads) + "/" + number(config.kv_heads) + " of " + number(config.head_dim) +
              ", intermediate " + number(config.intermediate) + ", vocabulary " + number(config.vocabulary)};
}

Result<WarmupCount> warm_up(const std::filesystem::path& folder, const WarmupKey& key, std::int32_t max_graph_rows,
                            CudaLayers& layers, kernels::cuda::Linears& linears, const device::TensorView& logits,
                            cudaStream_t stream) {
  const std::filesystem::path file = manifest_file(folder, key);
  const bool taken = take_manifest(file, key, linears);
  WarmupCount count;
  count.from_manifest = linears.measured_plans();
  const auto tune = [&](std::int64_t rows) { return layers.tune(rows, logits, stream); };
  for (const std::int32_t rows : DecodeGraphs::buckets()) {
    if (rows <= max_graph_rows) LEVADA_RETURN_IF_ERROR(tune(rows));
  }
  for (const std::int64_t rows : kChunkRows) {
    if (rows <= layers.max_rows()) LEVADA_RETURN_IF_ERROR(tune(rows));
  }
  count.measured = linears.measured_plans() - count.from_manifest;
  if (taken && count.measured == 0) return count;
  if (const Status written = write_manifest(file, key, {{kPlans, linears.save_plans()}}); !written.ok()) {
    LEVADA_LOG_WARNING("the warm-up manifest can't be kept, the next start measures again: ", written.message());
  }
  return count;
}

}  // namespace levada::model
