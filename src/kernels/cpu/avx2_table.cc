// The kernels of cpu/*_impl.h compiled for one instruction set; see cpu/table.h for what this file may not use.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/linear_impl.h"
#include "kernels/cpu/rows_impl.h"
#include "kernels/cpu/vec_avx2.h"

namespace levada::kernels {

// Constant-initialised: reading it runs none of this file's code.
extern const KernelTable kAvx2Table;
const KernelTable kAvx2Table = {
    .name = "avx2",
    .width = avx2::Vec::kWidth,
    .linear_scratch = linear_scratch,
    .linear = linear<avx2::Vec>,
    .rms_norm = rms_norm<avx2::Vec>,
    .rope = rope<avx2::Vec>,
    .silu_mul = silu_mul<avx2::Vec>,
    .attention_scratch = attention_scratch<avx2::Vec>,
    .partial_floats = partial_floats<avx2::Vec>,
    .attend = attend<avx2::Vec>,
    .attend_span = attend_span<avx2::Vec>,
    .merge_spans = merge_spans<avx2::Vec>,
};

}  // namespace levada::kernels
