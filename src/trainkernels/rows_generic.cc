#define LEVADA_ROWS generic
#include "trainkernels/rows_impl.h"

namespace levada::trainkernels {

Table generic_table() { return generic::make_table(); }

}  // namespace levada::trainkernels
