// What: cuda_module_symbol(), how a room of the main binary reaches its part of liblevada_cuda.so.
// Owner: the module stays loaded for the life of the process.
// Thread: any.
// Invariant: module and binary come from the same build; only abstract classes cross the border.
#pragma once

#include "base/status.h"

namespace levada::device {

// An extern "C" function of the module. kUnavailable with reason and remedy: no module, or one of another build.
Result<void*> cuda_module_symbol(const char* name);

}  // namespace levada::device
