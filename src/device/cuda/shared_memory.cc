#include "device/cuda/shared_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "base/log.h"
#include "base/memory_file.h"

namespace levada::device::cuda {
namespace {

struct Driver {
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuGetErrorString) error_text = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
};

template <class Function>
bool find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return false;
  function = reinterpret_cast<Function>(found);
  return true;
}

Result<const Driver*> driver() {
  static const std::unique_ptr<Driver> found = [] {
    auto all = std::make_unique<Driver>();
    const bool complete = find("cuMemCreate", all->create) && find("cuMemRelease", all->release) &&
                          find("cuMemAddressReserve", all->reserve) && find("cuMemAddressFree", all->unreserve) &&
                          find("cuMemMap", all->map) && find("cuMemUnmap", all->unmap) &&
                          find("cuMemSetAccess", all->set_access) &&
                          find("cuMemExportToShareableHandle", all->export_handle) &&
                          find("cuMemImportFromShareableHandle", all->import_handle) &&
                          find("cuMemGetAllocationGranularity", all->granularity) &&
                          find("cuGetErrorString", all->error_text) && find("cuDeviceGetAttribute", all->attribute);
    return complete ? std::move(all) : nullptr;
  }();
  if (found == nullptr)
    return unavailable("the NVIDIA driver has no virtual memory management; install one for CUDA 13");
  return found.get();
}

std::string text_of(CUresult error) {
  const char* text = nullptr;
  driver().value()->error_text(error, &text);
  return text == nullptr ? "error " + std::to_string(error) : text;
}

CUmemAllocationProp properties(int index, ShareKind kind) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, index};
  wanted.requestedHandleTypes =
      kind == ShareKind::kFabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wanted;
}

// Physical memory and where it is mapped; owns both.
class VmmBuffer final : public SharedBuffer {
 public:
  VmmBuffer(ShareKind kind, CUmemGenericAllocationHandle handle, std::size_t bytes)
      : kind_(kind), handle_(handle), bytes_(bytes) {}
  VmmBuffer(const VmmBuffer&) = delete;
  VmmBuffer& operator=(const VmmBuffer&) = delete;
  ~VmmBuffer() override {
    const Driver& cuda = *driver().value();
    if (mapped_) cuda.unmap(address_, bytes_);
    if (address_ != 0) cuda.unreserve(address_, bytes_);
    cuda.release(handle_);
  }

  Status map(int index) {
    const Driver& cuda = *driver().value();
    const auto check = [&](CUresult error, const char* doing) {
      if (error == CUDA_SUCCESS) return Status();
      return resource_exhausted("cuda:" + std::to_string(index) + ": " + doing + " " + std::to_string(bytes_) +
                                " bytes of shared memory: " + text_of(error));
    };
    LEVADA_RETURN_IF_ERROR(check(cuda.reserve(&address_, bytes_, 0, 0, 0), "reserving addresses for"));
    LEVADA_RETURN_IF_ERROR(check(cuda.map(address_, bytes_, 0, handle_, 0), "mapping"));
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, index};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return check(cuda.set_access(address_, bytes_, &access, 1), "giving access to");
  }

  void* data() const override { return reinterpret_cast<void*>(address_); }
  std::size_t size_bytes() const override { return bytes_; }
  ShareKind share_kind() const override { return kind_; }

  Result<Fd> export_descriptor() const override {
    const Driver& cuda = *driver().value();
    if (kind_ == ShareKind::kPosixFd) {
      int descriptor = -1;
      const CUresult error = cuda.export_handle(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
      if (error != CUDA_SUCCESS) return unavailable("exporting GPU memory: " + text_of(error));
      return Fd(descriptor);
    }
    CUmemFabricHandle fabric{};
    const CUresult error = cuda.export_handle(&fabric, handle_, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    if (error != CUDA_SUCCESS) return unavailable("exporting GPU memory to the fabric: " + text_of(error));
    LEVADA_ASSIGN_OR_RETURN(const MemoryFile file, MemoryFile::create("levada-fabric", sizeof fabric));
    std::memcpy(file.bytes().data(), &fabric, sizeof fabric);
    return file.read_only();
  }

 private:
  const ShareKind kind_;
  const CUmemGenericAllocationHandle handle_;
  const std::size_t bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

Result<std::size_t> rounded(int index, ShareKind kind, std::size_t bytes) {
  LEVADA_ASSIGN_OR_RETURN(const Driver* const cuda, driver());
  const CUmemAllocationProp wanted = properties(index, kind);
  std::size_t unit = 0;
  const CUresult error = cuda->granularity(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (error != CUDA_SUCCESS || unit == 0) return unavailable("asking for the unit of GPU memory: " + text_of(error));
  return (bytes + unit - 1) / unit * unit;
}

Result<std::unique_ptr<SharedBuffer>> create(int index, std::size_t bytes, ShareKind kind) {
  LEVADA_ASSIGN_OR_RETURN(const std::size_t whole, rounded(index, kind, bytes));
  const CUmemAllocationProp wanted = properties(index, kind);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult error = driver().value()->create(&handle, whole, &wanted, 0);
  if (error != CUDA_SUCCESS) {
    return resource_exhausted("cuda:" + std::to_string(index) + ": " + std::to_string(whole) +
                              " bytes to be shared as " + std::string(to_string(kind)) + ": " + text_of(error));
  }
  auto buffer = std::make_unique<VmmBuffer>(kind, handle, whole);
  LEVADA_RETURN_IF_ERROR(buffer->map(index));
  if (cudaMemset(buffer->data(), 0, whole) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
    return internal_error("CUDA: zeroing shared memory failed");
  return std::unique_ptr<SharedBuffer>(std::move(buffer));
}

bool offers_fabric(int index) {
  int offered = 0;
  return driver().value()->attribute(&offered, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, index) ==
             CUDA_SUCCESS &&
         offered != 0;
}

}  // namespace

Result<std::unique_ptr<SharedBuffer>> allocate_shared(int index, std::size_t bytes, FabricUse fabric) {
  LEVADA_RETURN_IF_ERROR(driver().status());
  if (fabric == FabricUse::kNever) return create(index, bytes, ShareKind::kPosixFd);
  Status why = unavailable("cuda:" + std::to_string(index) + " has no fabric handles");
  if (offers_fabric(index)) {
    Result<std::unique_ptr<SharedBuffer>> buffer = create(index, bytes, ShareKind::kFabric);
    if (buffer.ok()) return buffer;
    why = buffer.status();
  }
  if (fabric == FabricUse::kRequired)
    return Status(StatusCode::kFailedPrecondition, "a fabric handle is required: " + why.message(), "fabric");
  LEVADA_LOG_INFO("GPU memory is shared as posix fd, on this machine only: ", why.message());
  return create(index, bytes, ShareKind::kPosixFd);
}

Result<std::unique_ptr<DeviceBuffer>> import_shared(int index, ShareKind kind, Fd descriptor, std::size_t bytes) {
  LEVADA_ASSIGN_OR_RETURN(const std::size_t whole, rounded(index, kind, bytes));
  CUmemGenericAllocationHandle handle = 0;
  CUresult error = CUDA_SUCCESS;
  if (kind == ShareKind::kPosixFd) {
    void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
    error = driver().value()->import_handle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  } else {
    LEVADA_ASSIGN_OR_RETURN(const MemoryFile file, MemoryFile::map(std::move(descriptor), MemoryFile::Access::kRead,
                                                                   sizeof(CUmemFabricHandle)));
    CUmemFabricHandle fabric;
    std::memcpy(&fabric, file.bytes().data(), sizeof fabric);
    error = driver().value()->import_handle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC);
  }
  if (error != CUDA_SUCCESS) return data_loss("importing another process's GPU memory: " + text_of(error));
  auto buffer = std::make_unique<VmmBuffer>(kind, handle, whole);
  LEVADA_RETURN_IF_ERROR(buffer->map(index));
  return std::unique_ptr<DeviceBuffer>(std::move(buffer));
}

}  // namespace levada::device::cuda
