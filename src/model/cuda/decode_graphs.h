// What: DecodeGraphs, decode steps as recorded CUDA graphs, one for each shape, from the ids to the tokens.
// Owner: the CUDA model; the pool they were recorded for must outlive them.
// Thread: the worker's; one stream.
// Invariant: a replay computes exactly what the launches would: only the contents of the input arrays differ between
// steps of a shape.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <functional>
#include <map>
#include <span>

#include "base/status.h"
#include "model/cuda/step_inputs.h"

namespace levada::model {

// What tells one step's launches from another's.
struct StepShape {
  std::int32_t rows = 0;        // all of them, padding included
  std::int32_t rows_each = 1;   // of every request, where `flash`
  bool flash = false;           // FlashInfer attends; else row by row
  bool drafted = false;         // a draft's planes are written
  std::int32_t blocks = 0;      // requests that it proposes for, padding included
  std::int32_t block_rows = 0;  // of each: the last token and the masks; 0 without blocks

  StepSize size() const { return {rows, blocks}; }
  auto operator<=>(const StepShape&) const = default;
};

class DecodeGraphs {
 public:
  using Launches = std::function<Status(const StepShape&)>;

  DecodeGraphs() = default;
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;
  ~DecodeGraphs() {
    forget([](const StepShape&) { return true; });
  }

  // Numbers of rows, and of requests, that graphs are recorded for, ascending.
  static std::span<const std::int32_t> buckets();
  // The smallest that holds `count`; 0 if there is none.
  static std::int32_t bucket_for(std::int32_t count);

  // Records `launches(shape)` after one run of it that chooses its algorithms. `prepare(shape)` runs before and is not
  // recorded: what a caller does before each replay, too.
  Status record(const StepShape& shape, const Launches& prepare, const Launches& launches, cudaStream_t stream);
  bool has(const StepShape& shape) const { return graphs_.contains(shape); }
  Status replay(const StepShape& shape, cudaStream_t stream) const;
  std::size_t size() const { return graphs_.size(); }
  // REQUIRES: none of them is running.
  void forget(const std::function<bool(const StepShape&)>& which);

 private:
  Status capture(const StepShape& shape, const Launches& launches, cudaStream_t stream);
  std::map<StepShape, cudaGraphExec_t> graphs_;
};

}  // namespace levada::model
