// What: a CPU device whose streams' copies fail when told to, and which can be late, for tests of what follows.
// Owner: the test.
// Thread: as Device.
// Invariant: a copy that fails has copied nothing.
#pragma once

#include <unistd.h>

#include <atomic>

#include "device/cpu_device.h"
#include "device/fake_async_device_test.h"

namespace levada::store {

class FaultyDevice final : public device::Device {
 public:
  // The n-th copy from here on fails, and all after it; -1: none.
  void fail_after(int copies) { left_ = copies; }
  // The n-th copy from here on stops in its middle for ever, once it has said so by a byte to `tell`.
  void stall_after(int copies, int tell) {
    stall_ = copies;
    tell_ = tell;
  }

  device::DeviceKind kind() const override { return device::DeviceKind::kCpu; }
  int index() const override { return 0; }
  std::string name() const override { return "faulty"; }
  std::int64_t total_bytes() const override { return cpu_->total_bytes(); }
  std::int64_t free_bytes() const override { return cpu_->free_bytes(); }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate_pinned(std::size_t bytes) override {
    return cpu_->allocate(bytes);
  }
  Result<std::unique_ptr<device::SharedBuffer>> allocate_shared(std::size_t bytes, device::FabricUse use) override {
    return cpu_->allocate_shared(bytes, use);
  }
  Result<std::unique_ptr<device::DeviceBuffer>> import_shared(device::ShareKind kind, Fd descriptor,
                                                              std::size_t bytes) override {
    return cpu_->import_shared(kind, std::move(descriptor), bytes);
  }
  Result<std::unique_ptr<device::Stream>> make_stream() override {
    return std::unique_ptr<device::Stream>(std::make_unique<Stream>(*this));
  }
  Result<std::unique_ptr<device::Event>> make_event() override {
    return std::unique_ptr<device::Event>(std::make_unique<device::FakeEvent>());
  }

 private:
  class Stream final : public device::Stream {
   public:
    explicit Stream(FaultyDevice& device) : device_(device) {}
    Status copy(void* to, const void* from, std::size_t bytes) override {
      if (device_.left_ == 0) return internal_error("CUDA: copying: an illegal memory access was encountered");
      if (device_.left_ > 0) --device_.left_;
      if (device_.stall_ >= 0 && device_.stall_-- == 0) stall(to, from, bytes);
      return inner_.copy(to, from, bytes);
    }
    Status fill(void* to, std::uint8_t byte, std::size_t bytes) override { return inner_.fill(to, byte, bytes); }
    Status record(device::Event& event) override { return inner_.record(event); }
    Status wait(const device::Event& event) override { return inner_.wait(event); }
    Status synchronize() override { return inner_.synchronize(); }
    void* native_handle() const override { return nullptr; }

   private:
    void stall(void* to, const void* from, std::size_t bytes) {
      [[maybe_unused]] Status half = inner_.copy(to, from, bytes / 2);
      half = inner_.synchronize();
      [[maybe_unused]] const long told = ::write(device_.tell_, "s", 1);
      while (true) ::pause();
    }
    FaultyDevice& device_;
    device::FakeStream inner_;
  };
  std::unique_ptr<device::Device> cpu_ = device::make_cpu_device();
  std::atomic<int> left_{-1}, stall_{-1}, tell_{-1};
};

}  // namespace levada::store
