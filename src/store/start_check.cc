#include "store/start_check.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace levada::store {

Status check_importable(Arena& arena) {
  LEVADA_CHECK(arena.device() != nullptr, "the arena is on a device");
  const device::SharedBuffer& memory = arena.device_memory();
  std::vector<std::byte> written(std::min<std::uint64_t>(4096, arena.capacity_bytes())), read(written.size());
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<std::byte>(i * 31 + i / 256 + 1);

  LEVADA_ASSIGN_OR_RETURN(const Slot slot, arena.reserve("levada/start-check", written.size(), 0));
  LEVADA_RETURN_IF_ERROR(arena.write(slot, written));
  LEVADA_ASSIGN_OR_RETURN(Fd descriptor, memory.export_descriptor());
  LEVADA_ASSIGN_OR_RETURN(
      const std::unique_ptr<device::DeviceBuffer> imported,
      arena.device()->import_shared(memory.share_kind(), std::move(descriptor), arena.capacity_bytes()));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, arena.device()->make_stream());
  const auto offset = slot.bytes().data() - static_cast<std::byte*>(memory.data());
  LEVADA_RETURN_IF_ERROR(
      stream->copy(read.data(), static_cast<const std::byte*>(imported->data()) + offset, read.size()));
  LEVADA_RETURN_IF_ERROR(stream->synchronize());
  if (std::memcmp(read.data(), written.data(), read.size()) == 0) return {};
  return internal_error("what others read of " + arena.device()->name() + "'s shared memory (" +
                        std::string(device::to_string(memory.share_kind())) + ") is not what was written into it");
}

}  // namespace levada::store
