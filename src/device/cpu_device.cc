#include "device/cpu_device.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/memory_file.h"
#include "device/system_memory.h"

namespace levada::device {
namespace {

class CpuBuffer final : public DeviceBuffer {
 public:
  CpuBuffer(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  ~CpuBuffer() override {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  void* data() const override { return data_; }
  std::size_t size_bytes() const override { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

// The twin of CUDA's shared memory. An importer's mapping can't write.
class CpuSharedBuffer final : public SharedBuffer {
 public:
  explicit CpuSharedBuffer(MemoryFile memory) : memory_(std::move(memory)) {}
  void* data() const override { return memory_.bytes().data(); }
  std::size_t size_bytes() const override { return memory_.bytes().size(); }
  ShareKind share_kind() const override { return ShareKind::kMemoryFile; }
  Result<Fd> export_descriptor() const override { return memory_.read_only(); }

 private:
  MemoryFile memory_;
};

class CpuEvent final : public Event {
 public:
  bool recorded() const override { return recorded_.load(std::memory_order_acquire); }
  bool ready() const override {
    LEVADA_CHECK(recorded(), "an event is asked for only after it was recorded");
    return true;
  }
  Status wait() override {
    LEVADA_CHECK(recorded(), "an event is waited for only after it was recorded");
    return {};
  }
  void mark_recorded() { recorded_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> recorded_ = false;
};

class CpuStream final : public Stream {
 public:
  Status copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Status fill(void* to, std::uint8_t byte, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, byte, bytes);
    return {};
  }
  Status record(Event& event) override {
    auto* own = dynamic_cast<CpuEvent*>(&event);
    LEVADA_CHECK(own != nullptr, "the event belongs to another device");
    own->mark_recorded();
    return {};
  }
  Status wait(const Event& event) override {
    LEVADA_CHECK(event.recorded(), "a stream waits only for a recorded event");
    return {};
  }
  Status synchronize() override { return {}; }
  void* native_handle() const override { return nullptr; }
};

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  int index() const override { return 0; }
  std::string name() const override { return "cpu"; }
  std::int64_t total_bytes() const override { return read_system_memory().total_bytes; }
  std::int64_t free_bytes() const override { return read_system_memory().available_bytes; }

  // Straight from the kernel: page-aligned, zeroed, and resident only once touched.
  Result<std::unique_ptr<DeviceBuffer>> allocate(std::size_t bytes) override {
    if (bytes == 0) return std::unique_ptr<DeviceBuffer>(std::make_unique<CpuBuffer>(nullptr, 0));
    const std::int64_t available = free_bytes();
    if (available <= 0 || bytes > static_cast<std::size_t>(available)) {
      return resource_exhausted("cpu: " + std::to_string(bytes) + " bytes are wanted and " + std::to_string(available) +
                                " bytes are available");
    }
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return resource_exhausted("cpu: mapping " + std::to_string(bytes) + " bytes failed with " +
                                std::to_string(available) + " bytes available: " + std::strerror(errno));
    }
    return std::unique_ptr<DeviceBuffer>(std::make_unique<CpuBuffer>(data, bytes));
  }
  Result<std::unique_ptr<DeviceBuffer>> allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  Result<std::unique_ptr<SharedBuffer>> allocate_shared(std::size_t bytes, FabricUse fabric) override {
    if (fabric == FabricUse::kRequired) {
      return Status(StatusCode::kFailedPrecondition, "cpu: a fabric handle is required, and only GPUs have them",
                    "fabric");
    }
    LEVADA_ASSIGN_OR_RETURN(MemoryFile memory, MemoryFile::create("levada-device", bytes));
    return std::unique_ptr<SharedBuffer>(std::make_unique<CpuSharedBuffer>(std::move(memory)));
  }
  Result<std::unique_ptr<DeviceBuffer>> import_shared(ShareKind kind, Fd descriptor, std::size_t bytes) override {
    if (kind != ShareKind::kMemoryFile) return Device::import_shared(kind, std::move(descriptor), bytes);
    LEVADA_ASSIGN_OR_RETURN(MemoryFile memory,
                            MemoryFile::map(std::move(descriptor), MemoryFile::Access::kRead, bytes));
    return std::unique_ptr<DeviceBuffer>(std::make_unique<CpuSharedBuffer>(std::move(memory)));
  }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::unique_ptr<Stream>(std::make_unique<CpuStream>());
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::unique_ptr<Event>(std::make_unique<CpuEvent>()); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace levada::device
