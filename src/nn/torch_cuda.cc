#include <ATen/Context.h>
#include <dlfcn.h>
#include <link.h>

#include <filesystem>

#include "nn/tensor.h"

namespace levada::nn {
namespace {

Status load_library() {
  void* cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (cpu == nullptr || dlinfo(cpu, RTLD_DI_LINKMAP, &map) != 0) {
    return unavailable("libtorch_cpu.so is linked statically: CUDA needs the shared library of the torch package");
  }
  const std::filesystem::path library = std::filesystem::path(map->l_name).parent_path() / "libtorch_cuda.so";
  // Global: its operators register themselves with the dispatcher in libtorch_cpu. Never unloaded.
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return unavailable(std::string("torch's CUDA library can't be loaded: ") + dlerror() +
                       "; install the torch package with its nvidia-* dependencies (pip install torch==2.11.0) and put "
                       "its lib folders on LD_LIBRARY_PATH, or use --device cpu");
  }
  return {};
}

}  // namespace

Status load_torch_cuda() {
  static const Status loaded = load_library();
  LEVADA_RETURN_IF_ERROR(loaded);
  return guarded("starting CUDA in torch", [] { at::globalContext().lazyInitDevice(at::kCUDA); });
}

}  // namespace levada::nn
