// What: memory of a GPU that other processes map: CUDA's virtual memory management (VMM), exported as a file descriptor
// or a fabric handle.
// Owner: the caller of each function owns the buffer; the physical memory lives until its last mapping has gone.
// Thread: any; the device is the calling thread's current one.
// Invariant: an importer's mapping has the exporter's size, rounded up alike to the device's granularity.
// The driver's functions are found through the runtime, so that nothing links against libcuda.
#pragma once

#include "device/device.h"

namespace levada::device::cuda {

Result<std::unique_ptr<SharedBuffer>> allocate_shared(int index, std::size_t bytes, FabricUse fabric);
Result<std::unique_ptr<DeviceBuffer>> import_shared(int index, ShareKind kind, Fd descriptor, std::size_t bytes);

}  // namespace levada::device::cuda
