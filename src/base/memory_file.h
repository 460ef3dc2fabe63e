// What: MemoryFile, anonymous memory with a descriptor (memfd), mapped here, that other processes can map too.
// Owner: owns its mapping and its descriptor; spans die with it.
// Thread: immutable after creation.
// Invariant: the length never changes (sealed), so that no holder of the descriptor can make another one fault by
// cutting it. Descriptors from read_only() can't write, whatever their holder does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.h"
#include "base/status.h"

namespace levada {

class MemoryFile {
 public:
  // `bytes` of zeros, mapped read and write. Nothing is resident yet. kResourceExhausted if the system has no room.
  static Result<MemoryFile> create(const char* name, std::uint64_t bytes);
  // Maps a descriptor that a peer passed. kDataLoss if it isn't sealed against changes of its length or holds less than
  // `least_bytes`.
  enum class Access { kRead, kReadWrite };
  static Result<MemoryFile> map(Fd descriptor, Access access, std::uint64_t least_bytes);

  MemoryFile() = default;
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;
  ~MemoryFile();

  std::span<std::byte> bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }
  // Makes [offset, offset + length) resident, so that the first writer doesn't pay for page faults.
  Status prefault(std::uint64_t offset, std::uint64_t length) const;
  // A new descriptor of the same memory through which nobody can write.
  Result<Fd> read_only() const;

 private:
  MemoryFile(Fd descriptor, std::span<std::byte> bytes) : descriptor_(std::move(descriptor)), bytes_(bytes) {}
  void unmap();

  Fd descriptor_;
  std::span<std::byte> bytes_;
};

}  // namespace levada
