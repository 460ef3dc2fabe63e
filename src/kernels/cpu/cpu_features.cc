#include "kernels/cpu/quant_table.h"
#include "kernels/cpu/table.h"

namespace levada::kernels {

extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
extern const QuantTable kAvx2QuantTable;
extern const QuantTable kAvx512QuantTable;

// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
const KernelTable* avx2_table() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kAvx2Table : nullptr;
}

const KernelTable* avx512_table() {
  const bool supported = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("fma");
  return supported ? &kAvx512Table : nullptr;
}

const QuantTable* avx2_quant_table() {
  return avx2_table() != nullptr && __builtin_cpu_supports("f16c") ? &kAvx2QuantTable : nullptr;
}

const QuantTable* avx512_quant_table() {
  return avx512_table() != nullptr && __builtin_cpu_supports("avx512vnni") ? &kAvx512QuantTable : nullptr;
}

}  // namespace levada::kernels
