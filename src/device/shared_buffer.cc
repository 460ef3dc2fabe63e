#include "device/device.h"

namespace levada::device {

std::string_view to_string(ShareKind kind) {
  switch (kind) {
    case ShareKind::kMemoryFile: return "memory file";
    case ShareKind::kPosixFd: return "posix fd";
    case ShareKind::kFabric: return "fabric";
  }
  return "unknown";
}

Result<std::unique_ptr<SharedBuffer>> Device::allocate_shared(std::size_t, FabricUse) {
  return Status(StatusCode::kFailedPrecondition, name() + " shares no memory with other processes");
}

Result<std::unique_ptr<DeviceBuffer>> Device::import_shared(ShareKind kind, Fd, std::size_t) {
  return Status(StatusCode::kFailedPrecondition,
                name() + " can't map memory that is shared as " + std::string(to_string(kind)));
}

}  // namespace levada::device
