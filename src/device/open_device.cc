#include <dlfcn.h>

#include <filesystem>

#include "base/interface_id.h"
#include "device/cpu_device.h"
#include "device/cuda/factory.h"
#include "device/device.h"
#include "device/module.h"

namespace levada::device {
namespace {

constexpr const char* kModule = "liblevada_cuda.so";

std::filesystem::path module_path() {
  std::error_code error;
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / kModule;
  if (std::filesystem::exists(beside, error)) return beside;
  return std::filesystem::path(LEVADA_CUDA_BUILD_DIR) / kModule;
}

Result<std::unique_ptr<Device>> open_cuda(int index) {
  LEVADA_ASSIGN_OR_RETURN(void* open, cuda_module_symbol(kOpenCudaDevice));
  Result<std::unique_ptr<Device>> result = unavailable("the module gave no answer");
  reinterpret_cast<OpenCudaDevice*>(open)(index, &result);
  return result;
}

}  // namespace

Result<void*> cuda_module_symbol(const char* name) {
  const std::filesystem::path path = module_path();
  // Never closed: buffers, streams and the CUDA runtime's own threads may outlive every Device.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return unavailable(std::string("no CUDA here: ") + dlerror() + "; build the target levada_cuda on a machine with " +
                       "the CUDA 13 runtime and keep " + kModule + " beside the executable, or use --device cpu");
  }
  auto symbol = symbol_of(module, path.string(), name);
  if (!symbol.ok()) return unavailable(symbol.status().message() + ", or use --device cpu");
  return symbol;
}

Result<void*> symbol_of(void* module, const std::string& path, const char* name) {
  const auto id = reinterpret_cast<const char* (*)()>(dlsym(module, kModuleInterfaceId));
  const std::string theirs = id == nullptr ? "unknown" : id();
  void* const symbol = dlsym(module, name);
  if (theirs == interface_id() && symbol != nullptr) return symbol;
  return unavailable(path + " belongs to another build of levada (" + theirs + ", this one is " + interface_id() +
                     "): build it anew together with the binary");
}

Result<std::unique_ptr<Device>> open_device(DeviceKind kind, int index) {
  if (kind == DeviceKind::kCuda) return open_cuda(index);
  if (index != 0) return unavailable("cpu:" + std::to_string(index) + ": there is one CPU device, cpu:0");
  return make_cpu_device();
}

}  // namespace levada::device
