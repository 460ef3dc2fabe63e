// What: the CPU twin of a device: memory from the kernel, streams and events that do everything at once.
// Owner: open_device(kCpu) makes it.
// Thread: as device.h says.
// Invariant: an operation has happened when its call returns, so a recorded event is ready.
#pragma once

#include <memory>

#include "device/device.h"

namespace levada::device {

std::unique_ptr<Device> make_cpu_device();

}  // namespace levada::device
