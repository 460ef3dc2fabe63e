#include "base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace levada {
namespace {

constexpr int kFixedLength = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status refused(const char* what, std::uint64_t bytes) {
  return resource_exhausted(std::string(what) + " of " + std::to_string(bytes) +
                            " bytes of shared memory: " + std::strerror(errno));
}

Result<std::span<std::byte>> mapped(int descriptor, int protection, std::uint64_t bytes) {
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return refused("mapping", bytes);
  return std::span(static_cast<std::byte*>(address), bytes);
}

}  // namespace

Result<MemoryFile> MemoryFile::create(const char* name, std::uint64_t bytes) {
  Fd descriptor(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) return refused("creation", bytes);
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) return refused("creation", bytes);
  if (::fcntl(descriptor.get(), F_ADD_SEALS, kFixedLength) != 0) return refused("sealing", bytes);
  LEVADA_ASSIGN_OR_RETURN(const std::span<std::byte> memory, mapped(descriptor.get(), PROT_READ | PROT_WRITE, bytes));
  return MemoryFile(std::move(descriptor), memory);
}

Result<MemoryFile> MemoryFile::map(Fd descriptor, Access access, std::uint64_t least_bytes) {
  struct stat file {};
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return data_loss("the peer's shared memory isn't sealed");
  if (::fstat(descriptor.get(), &file) != 0 || file.st_size <= 0 ||
      static_cast<std::uint64_t>(file.st_size) < least_bytes) {
    return data_loss("the peer's shared memory has " + std::to_string(file.st_size) + " bytes, at least " +
                     std::to_string(least_bytes) + " were promised");
  }
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  LEVADA_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          mapped(descriptor.get(), protection, static_cast<std::uint64_t>(file.st_size)));
  return MemoryFile(std::move(descriptor), memory);
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), bytes_(std::exchange(other.bytes_, {})) {}

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  if (this != &other) {
    unmap();
    descriptor_ = std::move(other.descriptor_);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

MemoryFile::~MemoryFile() { unmap(); }

void MemoryFile::unmap() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
}

Status MemoryFile::prefault(std::uint64_t offset, std::uint64_t length) const {
  // Reserving first: a file system that is full says so here, where a touched page would end the process.
  if (::fallocate(descriptor_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0)
    return refused("allocation", length);
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  if (::madvise(bytes_.data() + begin, offset + length - begin, MADV_POPULATE_WRITE) == 0) return {};
  for (std::uint64_t at = begin; at < offset + length; at += page) {  // a kernel older than 5.14
    volatile std::byte* touched = bytes_.data() + at;
    *touched = *touched;
  }
  return {};
}

Result<Fd> MemoryFile::read_only() const {
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor_.get());
  Fd descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.valid())
    return unavailable("reopening shared memory read-only: " + std::string(std::strerror(errno)));
  return descriptor;
}

}  // namespace levada
