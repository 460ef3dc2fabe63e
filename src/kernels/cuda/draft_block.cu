#include "kernels/cuda/device_values.h"
#include "kernels/cuda/draft_block.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kThreads = 32;

// What the samples of a request give: how many drafts hold, as core::accepted_drafts().
__device__ int accepted(const DraftBlocks& call, const BlockRequest& request) {
  int run = 0;
  while (run < request.drafts &&
         __ldcg(call.samples + request.sample + run) == __ldcg(call.ids + request.draft_row + run)) {
    ++run;
  }
  return run;
}

// A block per request, its threads over the rows. It lets no successor start early (draft_block.h).
__global__ void __launch_bounds__(kThreads) begin_kernel(DraftBlocks call) {
  wait_for_predecessors();
  const int block = static_cast<int>(blockIdx.x);
  const BlockRequest request = call.requests[block];
  const BlockArrays& out = call.out;
  int token = 0, first = 0;
  if (request.sample >= 0) {
    const int run = accepted(call, request);
    token = __ldcg(call.samples + request.sample + run);
    first = request.position + run;
  }
  const std::int32_t* const table = call.block_tables + request.table_first;
  for (int o = static_cast<int>(threadIdx.x); o < call.rows; o += kThreads) {
    const int at = block * call.rows + o, position = first + o;
    const bool real = request.sample >= 0 && o < request.rows;
    out.ids[at] = o == 0 ? token : call.mask_id;
    out.positions[at] = real ? position : 0;
    out.slots[at] = real ? __ldcg(table + position / call.page_size) * call.page_size + position % call.page_size : -1;
    out.table_first[at] = request.table_first;
    out.lengths[at] = real ? first + request.rows : 0;
    out.starts[at] = real ? request.first_key : 0;
    out.sliding_lengths[at] = real ? position + 1 : 0;
    out.sliding_starts[at] = real ? max(request.first_key, position + 1 - call.window) : 0;
    if (o > 0) out.guessing_rows[block * (call.rows - 1) + o - 1] = at;
  }
  __threadfence();
}

}  // namespace

Status begin_draft_blocks(const DraftBlocks& call, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(call.count >= 0 && call.rows >= 2 && call.page_size >= 1, "draft blocks",
                                "at least two rows in each, pages of at least one token"));
  if (call.count == 0) return {};
  return launch("draft blocks", begin_kernel, {dim3(static_cast<unsigned>(call.count)), kThreads}, stream, call);
}

}  // namespace levada::kernels::cuda
