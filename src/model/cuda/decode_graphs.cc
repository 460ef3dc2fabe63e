#include "model/cuda/decode_graphs.h"

#include "kernels/cuda/launch.h"

namespace levada::model {

using kernels::cuda::check_cuda;

namespace {

constexpr std::int32_t kBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512};

}  // namespace

std::span<const std::int32_t> DecodeGraphs::buckets() { return kBuckets; }

DecodeGraphs::~DecodeGraphs() {
  for (const auto& [rows, graph] : graphs_) cudaGraphExecDestroy(graph);
}

Status DecodeGraphs::record(std::int32_t min_rows, std::int32_t max_rows,
                            const std::function<Status(std::int32_t)>& prepare,
                            const std::function<Status(std::int32_t)>& launches, cudaStream_t stream) {
  for (std::int32_t rows : kBuckets) {
    if (rows < min_rows) continue;
    if (rows > max_rows) break;
    LEVADA_RETURN_IF_ERROR(record_at(rows, prepare, launches, stream));
  }
  return {};
}

Status DecodeGraphs::record_at(std::int32_t rows, const std::function<Status(std::int32_t)>& prepare,
                               const std::function<Status(std::int32_t)>& launches, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(prepare(rows));
  LEVADA_RETURN_IF_ERROR(launches(rows));
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaStreamSynchronize(stream), "running a decode step"));
  return record_one(rows, launches, stream);
}

Status DecodeGraphs::record_one(std::int32_t rows, const std::function<Status(std::int32_t)>& launches,
                                cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a decode step"));
  const Status launched = launches(rows);
  cudaGraph_t graph = nullptr;
  const Status ended = check_cuda(cudaStreamEndCapture(stream, &graph), "recording a decode step");
  cudaGraphExec_t ready = nullptr;
  Status made = launched.ok() ? ended : launched;
  if (made.ok()) made = check_cuda(cudaGraphInstantiate(&ready, graph, 0), "making a decode graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (made.ok()) graphs_[rows] = ready;
  return made;
}

std::int32_t DecodeGraphs::bucket_for(std::int32_t rows) const {
  const auto found = graphs_.lower_bound(rows);
  return found == graphs_.end() ? 0 : found->first;
}

Status DecodeGraphs::replay(std::int32_t bucket, cudaStream_t stream) const {
  return check_cuda(cudaGraphLaunch(graphs_.at(bucket), stream), "starting a decode step");
}

}  // namespace levada::model
