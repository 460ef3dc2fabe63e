// What: MappedFile, a whole regular file mapped read-only.
// Owner: owns its mapping; every span from bytes() dies with it. Moving keeps addresses.
// Thread: immutable after open; drop_resident() from any.
// Invariant: bytes() covers the file as it was long at open. Whoever shortens the file while it is mapped ends its
// readers with SIGBUS: checkpoints are replaced by renaming, never rewritten in place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/status.h"

namespace levada {

class MappedFile {
 public:
  // kNotFound if there is no such file, kPermissionDenied if it may not be read, kInvalidArgument if it is not a
  // regular file (a folder, a pipe), kUnavailable if the system can't map it. An empty file gives empty bytes().
  static Result<MappedFile> open(const std::filesystem::path& file);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Takes the pages that hold `part` out of this process's resident set; reading them again fetches them from the file.
  // REQUIRES: `part` lies inside bytes().
  void drop_resident(std::span<const std::byte> part) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace levada
