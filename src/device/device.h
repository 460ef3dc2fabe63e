// What: Device, Stream, Event, DeviceBuffer: where bytes live and in which order things touch them.
// Owner: a Device is opened once by whoever composes the process and injected everywhere (S39: never chosen by link
// order or a global registry); buffers, streams and events must not outlive it and free themselves in their
// destructors.
// Thread: Device from any thread; a Stream from one thread at a time.
// Invariant: work on one stream happens in order; between streams only through events; waiting for an event that was
// never recorded is a programmer error and aborts (law 14: "recorded" first, then the event).
// The CUDA side lives in liblevada_cuda.so, loaded when asked for, so one binary runs on machines without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::device {

class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual std::size_t size_bytes() const = 0;
};

// By what another process gets at the memory: the CPU twin's memory file, a file descriptor of CUDA's virtual memory
// management, or its fabric handle, which other machines of an NVLink domain could import too.
enum class ShareKind : std::uint8_t { kMemoryFile = 1, kPosixFd = 2, kFabric = 3 };
std::string_view to_string(ShareKind kind);

// Memory of a device that other processes on this machine can import.
class SharedBuffer : public DeviceBuffer {
 public:
  virtual ShareKind share_kind() const = 0;
  // A new descriptor for one importer, to be passed over a Unix socket. (A fabric handle's is a file that holds it.)
  virtual Result<Fd> export_descriptor() const = 0;
};

enum class FabricUse : std::uint8_t { kNever, kIfPermitted, kRequired };

class Event {
 public:
  virtual ~Event() = default;
  virtual bool recorded() const = 0;
  // True once everything before the record has happened. Aborts when not recorded.
  virtual bool ready() const = 0;
  // Blocks the calling thread. kInternal when the device failed.
  virtual Status wait() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Either side may be host or device memory. Both must stay alive until the copy happened.
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status fill(void* to, std::uint8_t byte, std::size_t bytes) = 0;
  virtual Status record(Event& event) = 0;
  virtual Status wait(const Event& event) = 0;
  virtual Status synchronize() = 0;
  // cudaStream_t for CUDA, nullptr for CPU.
  virtual void* native_handle() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual int index() const = 0;
  virtual std::string name() const = 0;
  virtual std::int64_t total_bytes() const = 0;
  virtual std::int64_t free_bytes() const = 0;
  // Memory of this device, zeroed. kResourceExhausted with wanted and free bytes.
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(std::size_t bytes) = 0;
  // Host memory this device copies from and to at full speed (page-locked for CUDA).
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate_pinned(std::size_t bytes) = 0;
  // Zeroed memory that others can import. kResourceExhausted as allocate(); kFailedPrecondition if a fabric handle is
  // required and none is to be had: never another kind then.
  virtual Result<std::unique_ptr<SharedBuffer>> allocate_shared(std::size_t bytes, FabricUse fabric);
  // The memory that another process exported, mapped here; to be read only. kFailedPrecondition for a kind of another
  // sort of device, kDataLoss for a descriptor that isn't such memory of at least `bytes`.
  virtual Result<std::unique_ptr<DeviceBuffer>> import_shared(ShareKind kind, Fd descriptor, std::size_t bytes);
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
  // The error that the device keeps, after which whatever it is asked for fails until the process starts anew (CUDA: a
  // kernel that touched foreign memory, an uncorrectable memory error); ok if there is none. Waits for work under way.
  virtual Status health() const { return {}; }
};

// kUnavailable with the reason and the remedy when there is no such device here.
Result<std::unique_ptr<Device>> open_device(DeviceKind kind, int index = 0);

}  // namespace levada::device
