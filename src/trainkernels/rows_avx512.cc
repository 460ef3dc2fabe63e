#define LEVADA_ROWS avx512
#include "trainkernels/rows_impl.h"

namespace levada::trainkernels {

Table avx512_table() { return avx512::make_table(); }

}  // namespace levada::trainkernels
