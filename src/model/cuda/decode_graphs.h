// What: DecodeGraphs, decode steps as recorded CUDA graphs: one per bucket of rows, from the ids to the greedy tokens.
// Owner: the CUDA model; the pool it was recorded for must outlive it.
// Thread: the worker's; one stream.
// Invariant: a replay computes exactly what the launches would: only the contents of the input arrays differ between
// steps. A step that doesn't fit (not one row per request, too many rows, other pool) is declined, never cut.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <span>

#include "base/status.h"

namespace levada::model {

class DecodeGraphs {
 public:
  DecodeGraphs() = default;
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;
  ~DecodeGraphs();

  // Every number of rows that may be recorded, ascending.
  static std::span<const std::int32_t> buckets();
  // Records `launches(rows)` for every bucket from min_rows to max_rows, each after one run of it that chooses its
  // algorithms.
  // `prepare(rows)` runs before and is not recorded: what a caller does before each replay, too.
  Status record(std::int32_t min_rows, std::int32_t max_rows, const std::function<Status(std::int32_t rows)>& prepare,
                const std::function<Status(std::int32_t rows)>& launches, cudaStream_t stream);
  // One of any number of rows, as record() does it.
  Status record_at(std::int32_t rows, const std::function<Status(std::int32_t rows)>& prepare,
                   const std::function<Status(std::int32_t rows)>& launches, cudaStream_t stream);
  bool has(std::int32_t rows) const { return graphs_.contains(rows); }
  // The smallest recorded bucket that holds `rows`; 0 if there is none.
  std::int32_t bucket_for(std::int32_t rows) const;
  Status replay(std::int32_t bucket, cudaStream_t stream) const;
  std::size_t size() const { return graphs_.size(); }

 private:
  Status record_one(std::int32_t rows, const std::function<Status(std::int32_t)>& launches, cudaStream_t stream);
  std::map<std::int32_t, cudaGraphExec_t> graphs_;
};

}  // namespace levada::model
