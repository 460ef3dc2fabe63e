#define LEVADA_ROWS avx2
#include "trainkernels/rows_impl.h"

namespace levada::trainkernels {

Table avx2_table() { return avx2::make_table(); }

}  // namespace levada::trainkernels
