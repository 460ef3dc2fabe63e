// What: QuantTable, the kernels on weights kept in GGUF's blocks, compiled once per instruction set.
// Owner: static tables; all memory is the caller's.
// Thread: any, on disjoint outputs.
// Invariant: as table.h. A row of activations is rounded to two bytes in blocks of 32 of its own; products inside a
// block are exact integers and blocks are added in ascending order by fused multiply-adds, so a result depends on its
// row and column alone, and is the same bits for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant.h"

namespace levada::kernels {

// A digit of an activation is a byte from -127 to 127; the first counts 254 times as much as the second.
inline constexpr int kDigitBase = 254;

// 32 activations: x[i] is about scale * (254 * digit[0][i] + digit[1][i]), the largest magnitude being 127 * 254.
struct RoundedBlock {
  float scale;
  float scaled_sum;        // scale times the sum of all 32
  std::int32_t sum[2][2];  // [digit][half]: of 16 digits
  std::int8_t digit[2][32];
};
static_assert(sizeof(RoundedBlock) == 88);

struct QuantArgs {
  const RoundedBlock* x;  // [rows, k / 32]
  const std::byte* panels;
  QuantFormat format;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, n, k;
  std::int64_t panel_bytes;
  bool accumulate;
};

struct QuantTable {
  const char* name;
  // k (a multiple of 32) activations of one row.
  void (*round)(const float* x, std::int64_t k, RoundedBlock* out);
  // Floats of scratch, aligned to a cache line, for linear of this k.
  std::int64_t (*scratch)(std::int64_t k);
  // Panels [begin, end): output columns [16 begin, min(16 end, n)) of all rows.
  void (*linear)(const QuantArgs&, std::int64_t begin, std::int64_t end, float* scratch);
  // The same with the first digits of the activations alone. Q8_0 only.
  void (*linear_rough)(const QuantArgs&, std::int64_t begin, std::int64_t end, float* scratch);
};

// nullptr when this CPU or its operating system lacks the instructions (AVX2, FMA, F16C; AVX-512 with VNNI; those and AMX).
const QuantTable* avx2_quant_table();
const QuantTable* avx512_quant_table();
const QuantTable* amx_quant_table();
// Asks the operating system for the tiles' registers, which a process must do once; whether it gives them.
bool request_amx_tiles();

}  // namespace levada::kernels
