// What: KernelTable, the plain-pointer kernels that are compiled once per instruction set, and their arguments.
// Owner: static tables; all memory, scratch included, is the caller's.
// Thread: any, on disjoint outputs.
// Invariant: arguments are checked by CpuOps before they come here; kernels never allocate and never fail. The files
// behind a table are compiled with their own -m flags: they use nothing from the standard library's templates, whose
// instantiations the linker could otherwise share with code that must run on any CPU. Sizes and strides are in
// elements.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/f16.h"

namespace levada::kernels {

enum class WeightType : std::uint8_t { kF32, kBF16, kF16 };

struct LinearArgs {
  const float* x;
  std::int64_t x_stride;
  const void* w;
  WeightType w_type;
  std::int64_t w_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, n, k;
  bool accumulate;
};

// Rows of [rows, heads, width]; for a plain row norm heads is 1.
struct NormArgs {
  const float* x;
  float* out;
  std::int64_t x_row_stride, x_head_stride, out_row_stride, out_head_stride;
  std::int64_t heads, width;
  const float* w;
  float eps;
};

struct RopeArgs {
  float* x;
  std::int64_t row_stride, head_stride;
  std::int64_t heads, width;
  const float* cos_sin;
  std::int64_t cos_sin_stride;
  const std::int32_t* positions;
};

struct SiluMulArgs {
  const float* gate_up;
  std::int64_t gate_up_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t width;
};

// Queries [first_query, first_query + queries) of one slice for one KV head: `group` heads share that KV head.
// Query i stands at position first_position + i and sees keys [first_key, first_position + i].
struct AttentionArgs {
  const float* q;  // first query, first head of the group
  std::int64_t q_row_stride, q_head_stride;
  float* out;
  std::int64_t out_row_stride, out_head_stride;
  const void* k_plane;  // float or Bf16 at [page 0, slot 0, this KV head]
  const void* v_plane;
  bool planes_are_bf16;
  std::int64_t token_stride;  // >= kv_heads * width
  std::int64_t page_size;
  const std::int32_t* block_table;  // of the slice
  std::int64_t queries, group, width;
  std::int64_t first_position;
  float scale;
  std::int64_t first_key;  // <= first_position
};

// Keys are summed in spans of this many positions, and the spans merged in order: the order depends on the query's
// position alone, and the spans of one long decode row can be computed by several threads.
inline constexpr std::int64_t kSpanKeys = 128;
// The first span with a key that is seen; those before it are left out.
inline std::int64_t first_span(const AttentionArgs& a) { return a.first_key / kSpanKeys; }

struct KernelTable {
  const char* name;
  std::int64_t width;  // floats per vector

  // Floats of scratch for linear of any n and this k.
  std::int64_t (*linear_scratch)(std::int64_t k);
  // Output columns [n_begin, n_end) of all rows.
  void (*linear)(const LinearArgs&, std::int64_t n_begin, std::int64_t n_end, float* scratch);
  void (*rms_norm)(const NormArgs&, std::int64_t row_begin, std::int64_t row_end);
  void (*rope)(const RopeArgs&, std::int64_t row_begin, std::int64_t row_end);
  void (*silu_mul)(const SiluMulArgs&, std::int64_t row_begin, std::int64_t row_end);

  // Floats of scratch for attend and attend_span with this many query rows (queries * group).
  std::int64_t (*attention_scratch)(std::int64_t query_rows, std::int64_t width);
  // Floats of one span's partial result.
  std::int64_t (*partial_floats)(std::int64_t query_rows, std::int64_t width);
  void (*attend)(const AttentionArgs&, float* scratch);
  // The part of attend that concerns span `span`, into `partial`; then merge_spans over all of them, in order, gives
  // what attend gives, bit for bit.
  void (*attend_span)(const AttentionArgs&, std::int64_t span, float* partial, float* scratch);
  void (*merge_spans)(const AttentionArgs&, std::int64_t spans, const float* partials, float* scratch);
};

// nullptr when this CPU or its operating system lacks the instructions.
const KernelTable* avx2_table();
const KernelTable* avx512_table();

}  // namespace levada::kernels
