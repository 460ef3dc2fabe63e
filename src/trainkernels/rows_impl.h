// What: the bodies of rows.h's kernels; every instruction set compiles them once, in a namespace of its own.
// Owner: rows_avx512.cc, rows_avx2.cc and rows_generic.cc.
// Thread: see rows.h.
// Invariant: plain loops that g++ vectorises; the flags of each file say how wide (CMakeLists.txt).
// LEVADA_ROWS names the namespace; row_values.h has what they share.
#pragma once

#include "trainkernels/head_rows.h"
#include "trainkernels/loss_rows.h"
#include "trainkernels/norm_rows.h"
#include "trainkernels/optimizer_rows.h"
#include "trainkernels/score_rows.h"
#include "trainkernels/table.h"

namespace levada::trainkernels::LEVADA_ROWS {

template <class T>
Rows<T> make_rows() {
  return {rms<T>,
          rms_backward<T>,
          norm_rope<T>,
          norm_rope_backward<T>,
          rope<T>,
          rope_backward<T>,
          to_heads<T>,
          from_heads<T>,
          attention_grad_in<T>,
          silu_mul<T>,
          silu_mul_backward<T>,
          cross_entropy<T>,
          cross_entropy_backward<T>,
          distill<T>,
          adamw<T>};
}

inline Table make_table() {
  return {make_rows<float>(), make_rows<Bf16>(), softmax_tile, softmax_tile_backward, sum_of_squares};
}

}  // namespace levada::trainkernels::LEVADA_ROWS
