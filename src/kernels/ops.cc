#include "kernels/ops.h"

#include <vector>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/ref/ref_quant.h"

namespace levada::kernels {

// Few rows and no arithmetic to speak of: every table takes them by the plain formulas.
void Ops::embed(const QuantMatrix& table, std::span<const std::int32_t> ids, const TensorView& out) {
  check_embed(table, ids, out);
  std::vector<std::byte> blocks(static_cast<std::size_t>(table.row_bytes()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    table.row(ids[i], blocks.data());
    dequantize_row(table.format(), blocks.data(), table.columns(),
                   out.as<float>() + static_cast<std::int64_t>(i) * out.strides[0]);
  }
}

std::unique_ptr<Ops> make_cpu_ops(ThreadPool& pool, const std::string& name) {
  const auto wanted = [&](const auto* table) { return table != nullptr && (name.empty() || name == table->name); };
  const QuantTable* const narrow = avx2_quant_table();
  const Bf16Table* const bf16 = wanted(avx512_bf16_table()) ? avx512_bf16_table() : nullptr;
  if (bf16 != nullptr || wanted(avx512_table())) {
    const QuantTable* const wide = amx_quant_table() != nullptr ? amx_quant_table() : avx512_quant_table();
    return std::make_unique<CpuOps>(pool, *avx512_table(), wide != nullptr ? wide : narrow, bf16);
  }
  if (wanted(avx2_table())) return std::make_unique<CpuOps>(pool, *avx2_table(), narrow, nullptr);
  if (name.empty() || name == "ref") return std::make_unique<RefOps>(pool);
  return nullptr;
}

}  // namespace levada::kernels
