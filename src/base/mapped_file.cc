#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/fd.h"

namespace levada {
namespace {

Status system_failure(const std::filesystem::path& file, const char* action, int error) {
  const std::string message = file.string() + ": cannot " + action + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR: return not_found(message);
    case EACCES:
    case EPERM: return Status(StatusCode::kPermissionDenied, message);
    case ENAMETOOLONG:
    case ELOOP: return invalid_argument(message);
    default: return unavailable(message);
  }
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever; for regular files it changes nothing.
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return system_failure(file, "open", errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_failure(file, "stat", errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument(file.string() + ": is not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return MappedFile(std::span<const std::byte>());
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return system_failure(file, "map", errno);
  return MappedFile(std::span(static_cast<const std::byte*>(address), size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop_resident(std::span<const std::byte> part) const {
  if (part.empty()) return;
  LEVADA_CHECK(part.data() >= bytes_.data() && part.data() + part.size() <= bytes_.data() + bytes_.size(),
               "drop_resident of bytes outside the mapping");
  // The mapping starts on a page, so rounding down stays inside; the kernel rounds the end up itself.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // advice: failing costs memory, nothing else
}

}  // namespace levada
