// What: Table, one compiled set of all row kernels, and the three that exist.
// Owner: rows.cc picks one at first use. Private to the room.
// Thread: any.
// Invariant: a table is only used on a processor that has its instructions.
#pragma once

#include "trainkernels/rows.h"

namespace levada::trainkernels {

struct Table {
  Rows<float> f32;
  Rows<Bf16> bf16;
  void (*softmax_tile)(const Tile&, float*, float*, float*);
  void (*softmax_tile_backward)(const Tile&, const float*, const float*, float*, float*, float*, float*);
  double (*sum_of_squares)(const float*, std::int64_t);
};

Table generic_table();
Table avx2_table();
Table avx512_table();

}  // namespace levada::trainkernels
