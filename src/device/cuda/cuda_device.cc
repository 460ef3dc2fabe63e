#include <cuda_runtime_api.h>

#include <atomic>

#include "base/interface_id.h"
#include "device/cuda/check.h"
#include "device/cuda/factory.h"
#include "device/cuda/shared_memory.h"

namespace levada::device {
namespace {

class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer(void* data, std::size_t bytes, bool pinned) : data_(data), bytes_(bytes), pinned_(pinned) {}
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  ~CudaBuffer() override { pinned_ ? cudaFreeHost(data_) : cudaFree(data_); }
  void* data() const override { return data_; }
  std::size_t size_bytes() const override { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
  bool pinned_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cudaEventDestroy(event_); }
  bool recorded() const override { return recorded_.load(std::memory_order_acquire); }
  bool ready() const override {
    LEVADA_CHECK(recorded(), "an event is asked for only after it was recorded");
    return cudaEventQuery(event_) != cudaErrorNotReady;
  }
  Status wait() override {
    LEVADA_CHECK(recorded(), "an event is waited for only after it was recorded");
    return check_cuda(cudaEventSynchronize(event_), "waiting for an event");
  }
  cudaEvent_t native() const { return event_; }
  void mark_recorded() { recorded_.store(true, std::memory_order_release); }

 private:
  cudaEvent_t event_;
  std::atomic<bool> recorded_ = false;
};

class CudaStream final : public Stream {
 public:
  CudaStream(cudaStream_t stream, int index) : stream_(stream), index_(index) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  Status copy(void* to, const void* from, std::size_t bytes) override {
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaSetDevice(index_), "choosing the device"));
    return check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying");
  }
  Status fill(void* to, std::uint8_t byte, std::size_t bytes) override {
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaSetDevice(index_), "choosing the device"));
    return check_cuda(cudaMemsetAsync(to, byte, bytes, stream_), "filling");
  }
  Status record(Event& event) override {
    CudaEvent& own = cuda(event);
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventRecord(own.native(), stream_), "recording an event"));
    own.mark_recorded();
    return {};
  }
  Status wait(const Event& event) override {
    LEVADA_CHECK(event.recorded(), "a stream waits only for a recorded event");
    return check_cuda(cudaStreamWaitEvent(stream_, cuda(const_cast<Event&>(event)).native(), 0), "ordering streams");
  }
  Status synchronize() override { return check_cuda(cudaStreamSynchronize(stream_), "waiting for a stream"); }
  void* native_handle() const override { return stream_; }

 private:
  static CudaEvent& cuda(Event& event) {
    auto* own = dynamic_cast<CudaEvent*>(&event);
    LEVADA_CHECK(own != nullptr, "the event belongs to another device");
    return *own;
  }
  cudaStream_t stream_;
  int index_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, std::string name) : index_(index), name_(std::move(name)) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int index() const override { return index_; }
  std::string name() const override { return name_; }
  std::int64_t total_bytes() const override { return memory().second; }
  std::int64_t free_bytes() const override { return memory().first; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(std::size_t bytes) override {
    LEVADA_RETURN_IF_ERROR(choose());
    void* data = nullptr;
    if (cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) return refused(error, bytes);
    auto buffer = std::make_unique<CudaBuffer>(data, bytes, false);
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaMemset(data, 0, bytes), "zeroing"));
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaDeviceSynchronize(), "zeroing"));
    return std::unique_ptr<DeviceBuffer>(std::move(buffer));
  }
  Result<std::unique_ptr<DeviceBuffer>> allocate_pinned(std::size_t bytes) override {
    LEVADA_RETURN_IF_ERROR(choose());
    void* data = nullptr;
    if (cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable); error != cudaSuccess) {
      return refused(error, bytes);
    }
    auto buffer = std::make_unique<CudaBuffer>(data, bytes, true);
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaMemset(data, 0, bytes), "zeroing"));
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaDeviceSynchronize(), "zeroing"));
    return std::unique_ptr<DeviceBuffer>(std::move(buffer));
  }
  Result<std::unique_ptr<SharedBuffer>> allocate_shared(std::size_t bytes, FabricUse fabric) override {
    LEVADA_RETURN_IF_ERROR(choose());
    return cuda::allocate_shared(index_, bytes, fabric);
  }
  Result<std::unique_ptr<DeviceBuffer>> import_shared(ShareKind kind, Fd descriptor, std::size_t bytes) override {
    if (kind == ShareKind::kMemoryFile) return Device::import_shared(kind, std::move(descriptor), bytes);
    LEVADA_RETURN_IF_ERROR(choose());
    return cuda::import_shared(index_, kind, std::move(descriptor), bytes);
  }
  Result<std::unique_ptr<Stream>> make_stream() override {
    LEVADA_RETURN_IF_ERROR(choose());
    cudaStream_t stream = nullptr;
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
    return std::unique_ptr<Stream>(std::make_unique<CudaStream>(stream, index_));
  }
  Result<std::unique_ptr<Event>> make_event() override {
    LEVADA_RETURN_IF_ERROR(choose());
    cudaEvent_t event = nullptr;
    LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(event));
  }
  Status health() const override {
    cudaGetLastError();  // the last error that was not kept
    LEVADA_RETURN_IF_ERROR(choose());
    return check_cuda(cudaDeviceSynchronize(), "asking for the device's health");
  }

 private:
  Status choose() const { return check_cuda(cudaSetDevice(index_), "choosing the device"); }
  std::pair<std::int64_t, std::int64_t> memory() const {
    std::size_t free = 0, total = 0;
    if (!choose().ok() || cudaMemGetInfo(&free, &total) != cudaSuccess) return {0, 0};
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }
  Status refused(cudaError_t error, std::size_t bytes) const {
    cudaGetLastError();  // an allocation that failed leaves the device usable
    return resource_exhausted("cuda:" + std::to_string(index_) + ": " + std::to_string(bytes) +
                              " bytes are wanted and " + std::to_string(free_bytes()) +
                              " bytes are free: " + cudaGetErrorString(error));
  }
  int index_;
  std::string name_;
};

Result<std::unique_ptr<Device>> open_cuda_device(int index) {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return unavailable(std::string("no CUDA device can be used: ") + cudaGetErrorString(error) +
                       "; install an NVIDIA driver for CUDA 13 (check with nvidia-smi), or use --device cpu");
  }
  if (index < 0 || index >= count) {
    return unavailable("cuda:" + std::to_string(index) + " is not here: this machine has " + std::to_string(count) +
                       " CUDA devices, counted from 0");
  }
  cudaDeviceProp properties{};
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaGetDeviceProperties(&properties, index), "asking for the device's name"));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, properties.name));
}

}  // namespace
}  // namespace levada::device

extern "C" __attribute__((visibility("default"))) const char* levada_module_interface_id() {
  return levada::interface_id();
}

extern "C" __attribute__((visibility("default"))) void levada_open_cuda_device(
    int index, levada::Result<std::unique_ptr<levada::device::Device>>* result) {
  *result = levada::device::open_cuda_device(index);
}
