// What: paged attention on CUDA through FlashInfer's tensor-core kernels: prefill, and decode of many or long requests.
// Owner: FlashAttention owns its plans (work lists and page tables on the device) and partial results; q, planes and out
// are the caller's.
// Thread: one stream at a time. plan() may prepare the next step while this one runs.
// Invariant: softmax in float32, weights rounded to q's type before they meet v. How a row's tokens are split depends on
// the batch: results of the same row in other batches differ by rounding. What isn't supported is said by supports();
// kernels/cuda/attention.h does that.
// Formula: kernels/cuda/attention.h, over kernels::PagedBatch.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "kernels/cuda/kv_scales.h"
#include "kernels/ops.h"

namespace levada::kernels::cuda {

struct FlashShape {
  int heads = 0, kv_heads = 0, head_dim = 0, page_size = 0;
  DType dtype = DType::kBF16;
  std::int64_t max_rows = 0;         // of one plan
  std::int64_t max_padded_rows = 0;  // of one padded plan
  std::int64_t max_pages = 0;        // named by one plan
  bool f8_kv = false;                // planes of float8_e4m3, bfloat16 only
};

class FlashAttention {
 public:
  static bool supports(const FlashShape& shape);
  // REQUIRES: supports(shape). kResourceExhausted without memory.
  static Result<std::unique_ptr<FlashAttention>> create(device::Device& device, const FlashShape& shape);
  ~FlashAttention();

  // Work lists for the next run()s. `padded_rows` 0: for just this batch. Else every slice is of `rows_each` rows and the lists are of
  // one shape for all batches of at most so many: a run() recorded in a graph after such a plan is replayed after any
  // other of as many padded rows and rows each. Rows past the batch's give finite nonsense. kInvalidArgument on slices out of order or
  // beyond the shape's limits.
  Status plan(const PagedBatch& batch, std::int32_t padded_rows, device::Stream& stream, std::int32_t rows_each = 1);

  // q: T [R, heads, head_dim], rows may be strided; planes T (or f8_e4m3) [pages, page_size, kv_heads, head_dim], contiguous; out
  // T [R, heads * head_dim], contiguous. R is the plan's rows. FlashInfer takes one pair of scales, none by page.
  Status run(const TensorView& q, const TensorView& k_plane, const TensorView& v_plane, float scale,
             const TensorView& out, cudaStream_t stream, const KvScales& scales = {});

  std::int64_t bytes() const;

 private:
  struct Plan;
  struct Block {
    std::unique_ptr<device::DeviceBuffer> pinned;
    std::unique_ptr<device::Event> sent;
  };
  explicit FlashAttention(const FlashShape& shape);
  Status gather_requests(const PagedBatch& batch, std::int32_t padded_rows, std::int32_t rows_each);

  const FlashShape shape_;
  std::size_t list_bytes_ = 0;  // of FlashInfer's lists; the requests' arrays follow them in lists_ and in the blocks
  std::size_t max_requests_ = 0;
  std::array<Block, 2> blocks_;
  std::size_t next_ = 0;
  std::unique_ptr<device::DeviceBuffer> lists_, partial_;
  // Of the plan being made: first row and first page of each request, tokens on its last page, pages.
  std::vector<std::int32_t> row_first_, page_first_, last_tokens_, pages_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace levada::kernels::cuda
