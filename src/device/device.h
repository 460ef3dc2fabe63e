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

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::device {

class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual std::size_t size_bytes() const = 0;
};

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
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
};

// kUnavailable with the reason and the remedy when there is no such device here.
Result<std::unique_ptr<Device>> open_device(DeviceKind kind, int index = 0);

}  // namespace levada::device
