#include "kernels/cpu/bf16_table.h"
#include "kernels/cpu/quant_table.h"
#include "kernels/cpu/table.h"

namespace levada::kernels {

extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
extern const Bf16Table kAvx512Bf16Table;
extern const QuantTable kAvx2QuantTable;
extern const QuantTable kAvx512QuantTable;
extern const QuantTable kAmxQuantTable;

// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
const KernelTable* avx2_table() {
  const bool supported =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return supported ? &kAvx2Table : nullptr;
}

const KernelTable* avx512_table() {
  const bool supported = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("fma");
  return supported ? &kAvx512Table : nullptr;
}

const Bf16Table* avx512_bf16_table() {
  return avx512_table() != nullptr && __builtin_cpu_supports("avx512bf16") ? &kAvx512Bf16Table : nullptr;
}

const QuantTable* avx2_quant_table() { return avx2_table() != nullptr ? &kAvx2QuantTable : nullptr; }

const QuantTable* avx512_quant_table() {
  return avx512_table() != nullptr && __builtin_cpu_supports("avx512vnni") ? &kAvx512QuantTable : nullptr;
}

const QuantTable* amx_quant_table() {
  const bool supported =
      avx512_quant_table() != nullptr && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8");
  static const bool granted = supported && request_amx_tiles();
  return granted ? &kAmxQuantTable : nullptr;
}

}  // namespace levada::kernels
