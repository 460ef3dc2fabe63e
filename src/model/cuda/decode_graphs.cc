#include "model/cuda/decode_graphs.h"

#include <algorithm>

#include "kernels/cuda/launch.h"

namespace levada::model {

using kernels::cuda::check_cuda;

namespace {

constexpr std::int32_t kBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512};

}  // namespace

std::span<const std::int32_t> DecodeGraphs::buckets() { return kBuckets; }

std::int32_t DecodeGraphs::bucket_for(std::int32_t count) {
  const auto* const found = std::lower_bound(std::begin(kBuckets), std::end(kBuckets), count);
  return found == std::end(kBuckets) ? 0 : *found;
}

Status DecodeGraphs::record(const StepShape& shape, const Launches& prepare, const Launches& launches,
                            cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(prepare(shape));
  LEVADA_RETURN_IF_ERROR(launches(shape));
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaStreamSynchronize(stream), "running a decode step"));
  return capture(shape, launches, stream);
}

Status DecodeGraphs::capture(const StepShape& shape, const Launches& launches, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a decode step"));
  const Status launched = launches(shape);
  cudaGraph_t graph = nullptr;
  const Status ended = check_cuda(cudaStreamEndCapture(stream, &graph), "recording a decode step");
  cudaGraphExec_t ready = nullptr;
  Status made = launched.ok() ? ended : launched;
  if (made.ok()) made = check_cuda(cudaGraphInstantiate(&ready, graph, 0), "making a decode graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (made.ok()) graphs_[shape] = ready;
  return made;
}

Status DecodeGraphs::replay(const StepShape& shape, cudaStream_t stream) const {
  return check_cuda(cudaGraphLaunch(graphs_.at(shape), stream), "starting a decode step");
}

void DecodeGraphs::forget(const std::function<bool(const StepShape&)>& which) {
  std::erase_if(graphs_, [&](const auto& entry) {
    if (!which(entry.first)) return false;
    cudaGraphExecDestroy(entry.second);
    return true;
  });
}

}  // namespace levada::model
