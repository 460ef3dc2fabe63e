// What: where the blocks of a draft begin: how many drafts the step's samples accept, and what a block's rows are.
// Owner: memory is the caller's.
// Thread: any, one at a time per stream; capturable in a graph.
// Invariant: acceptance is core::accepted_drafts(). No kernel after this one in the stream starts before it has ended,
// so that positions, slots and lengths that it writes may be read as early as those that the host sent.
// Rows: block b's row 0 is the last token that the samples give, at its position P; row o is the mask at P + o.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/status.h"

namespace levada::kernels::cuda {

// A request that wants proposals.
struct BlockRequest {
  std::int32_t sample = -1;      // index of its first verified row's sample; negative: padding, whose rows touch no KV
  std::int32_t draft_row = 0;    // ids[draft_row + i] is the guess at samples[sample + i]
  std::int32_t drafts = 0;       // so many of them
  std::int32_t position = 0;     // that samples[sample] has
  std::int32_t table_first = 0;  // of its pages in block_tables
  std::int32_t first_key = 0;    // the block attends nothing before
  std::int32_t rows = 0;         // of its block, at most the call's; the others are padding
};

// Of all rows of the blocks, device [requests * rows]. Full attention: both directions within the block. Sliding:
// `window` tokens up to the row's own.
struct BlockArrays {
  std::int32_t *ids, *positions, *slots, *table_first;
  std::int32_t *lengths, *starts, *sliding_lengths, *sliding_starts;
  std::int32_t* guessing_rows;  // [requests * (rows - 1)]: every row but each block's first
};

struct DraftBlocks {
  const BlockRequest* requests = nullptr;                                          // device
  std::int32_t count = 0, rows = 0;                                                // rows of each block
  const std::int32_t *samples = nullptr, *ids = nullptr, *block_tables = nullptr;  // device, of the step
  std::int32_t mask_id = 0, page_size = 1, window = 0;
  BlockArrays out{};
};
Status begin_draft_blocks(const DraftBlocks& call, cudaStream_t stream);

}  // namespace levada::kernels::cuda
