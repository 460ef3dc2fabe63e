// What: Bf16Table, linear with bfloat16 weights by instructions that multiply pairs of bfloat16, compiled for CPUs with them.
// Owner: static tables; all memory is the caller's.
// Thread: any, on disjoint outputs.
// Invariant: as table.h. Activations are rounded to bfloat16 (to nearest, ties to even); products are added in float32:
// lane l of a sum takes pairs l, l + 16, l + 32, … of k in this order, whatever the rows beside it, then lanes as sum4 says.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace levada::kernels {

struct Bf16Args {
  const Bf16* x;
  std::int64_t x_stride;
  const Bf16* w;
  std::int64_t w_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, n, k;
  bool accumulate;
};

struct Bf16Table {
  const char* name;
  // k activations of one row.
  void (*round)(const float* x, std::int64_t k, Bf16* out);
  // Output columns [n_begin, n_end) of all rows.
  void (*linear)(const Bf16Args&, std::int64_t n_begin, std::int64_t n_end);
};

// nullptr when this CPU or its operating system lacks the instructions (AVX-512 with BF16).
const Bf16Table* avx512_bf16_table();

}  // namespace levada::kernels
