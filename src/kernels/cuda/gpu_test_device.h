// What: a device::Device straight over the CUDA runtime, for this room's tests and bench: they link no other room's CUDA code.
// Owner: buffers, streams and events own what they made.
// Thread: one.
// Invariant: as device/device.h says. Test code only.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/check.h"
#include "device/device.h"

namespace levada::kernels::cuda {

inline Status test_status(cudaError_t error) {
  return error == cudaSuccess ? Status{} : internal_error(cudaGetErrorString(error));
}

class GpuTestDevice final : public device::Device {
 public:
  device::DeviceKind kind() const override { return device::DeviceKind::kCuda; }
  int index() const override { return 0; }
  std::string name() const override { return "test"; }
  std::int64_t total_bytes() const override { return 0; }
  std::int64_t free_bytes() const override { return 0; }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate(std::size_t bytes) override { return make<false>(bytes); }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate_pinned(std::size_t bytes) override {
    return make<true>(bytes);
  }
  Result<std::unique_ptr<device::Stream>> make_stream() override {
    return std::unique_ptr<device::Stream>(std::make_unique<TestStream>());
  }
  Result<std::unique_ptr<device::Event>> make_event() override {
    return std::unique_ptr<device::Event>(std::make_unique<TestEvent>());
  }

 private:
  template <bool kPinned>
  struct Buffer final : device::DeviceBuffer {
    ~Buffer() override { kPinned ? cudaFreeHost(at) : cudaFree(at); }
    void* data() const override { return at; }
    std::size_t size_bytes() const override { return bytes; }
    void* at = nullptr;
    std::size_t bytes = 0;
  };
  template <bool kPinned>
  static Result<std::unique_ptr<device::DeviceBuffer>> make(std::size_t bytes) {
    auto buffer = std::make_unique<Buffer<kPinned>>();
    buffer->bytes = bytes;
    LEVADA_RETURN_IF_ERROR(test_status(kPinned ? cudaMallocHost(&buffer->at, bytes) : cudaMalloc(&buffer->at, bytes)));
    if (!kPinned) LEVADA_RETURN_IF_ERROR(test_status(cudaMemset(buffer->at, 0, bytes)));
    return std::unique_ptr<device::DeviceBuffer>(std::move(buffer));
  }
  struct TestEvent final : device::Event {
    TestEvent() { cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }
    ~TestEvent() override { cudaEventDestroy(event); }
    bool recorded() const override { return done; }
    bool ready() const override { return cudaEventQuery(event) == cudaSuccess; }
    Status wait() override { return test_status(cudaEventSynchronize(event)); }
    cudaEvent_t event = nullptr;
    bool done = false;
  };
  struct TestStream final : device::Stream {
    TestStream() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
    ~TestStream() override { cudaStreamDestroy(stream); }
    Status copy(void* to, const void* from, std::size_t bytes) override {
      return test_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    }
    Status fill(void* to, std::uint8_t byte, std::size_t bytes) override {
      return test_status(cudaMemsetAsync(to, byte, bytes, stream));
    }
    Status record(device::Event& event) override {
      auto& own = static_cast<TestEvent&>(event);
      own.done = true;
      return test_status(cudaEventRecord(own.event, stream));
    }
    Status wait(const device::Event& event) override {
      return test_status(cudaStreamWaitEvent(stream, static_cast<const TestEvent&>(event).event, 0));
    }
    Status synchronize() override { return test_status(cudaStreamSynchronize(stream)); }
    void* native_handle() const override { return stream; }
    cudaStream_t stream = nullptr;
  };
};

}  // namespace levada::kernels::cuda
