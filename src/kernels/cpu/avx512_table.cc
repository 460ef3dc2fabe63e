// The kernels of cpu/*_impl.h compiled for one instruction set; see cpu/table.h for what this file may not use.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/linear_impl.h"
#include "kernels/cpu/rows_impl.h"
#include "kernels/cpu/vec_avx512.h"

namespace levada::kernels {

// Constant-initialised: reading it runs none of this file's code.
extern const KernelTable kAvx512Table;
const KernelTable kAvx512Table = {
    .name = "avx512",
    .width = avx512::Vec::kWidth,
    .linear_scratch = linear_scratch,
    .linear = linear<avx512::Vec>,
    .rms_norm = rms_norm<avx512::Vec>,
    .rope = rope<avx512::Vec>,
    .silu_mul = silu_mul<avx512::Vec>,
    .attention_scratch = attention_scratch<avx512::Vec>,
    .partial_floats = partial_floats<avx512::Vec>,
    .attend = attend<avx512::Vec>,
    .attend_span = attend_span<avx512::Vec>,
    .merge_spans = merge_spans<avx512::Vec>,
};

}  // namespace levada::kernels
