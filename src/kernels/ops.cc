#include "kernels/ops.h"

#include "kernels/cpu/cpu_ops.h"
#include "kernels/ref/ref_ops.h"

namespace levada::kernels {

std::unique_ptr<Ops> make_cpu_ops(ThreadPool& pool, const std::string& name) {
  for (const KernelTable* table : {avx512_table(), avx2_table()}) {
    if (table != nullptr && (name.empty() || name == table->name)) return std::make_unique<CpuOps>(pool, *table);
  }
  if (name.empty() || name == "ref") return std::make_unique<RefOps>(pool);
  return nullptr;
}

}  // namespace levada::kernels
