// What: cuda_module_symbol(), how a room of the main binary reaches its part of liblevada_cuda.so; symbol_of(), any module's.
// Owner: the module stays loaded for the life of the process.
// Thread: any.
// Invariant: nothing of a module is called unless its headers were the binary's; only abstract classes cross the border.
#pragma once

#include <string>

#include "base/status.h"

namespace levada::device {

// An extern "C" function of the module. kUnavailable with reason and remedy: no module, or one of another build.
Result<void*> cuda_module_symbol(const char* name);

// The same of a module that is loaded already; `path` is for the error.
Result<void*> symbol_of(void* module, const std::string& path, const char* name);

}  // namespace levada::device
