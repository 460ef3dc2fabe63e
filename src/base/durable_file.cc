#include "base/durable_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace levada {
namespace {

Status failed(const char* doing, const std::filesystem::path& path) {
  const int error = errno;
  const std::string message = path.string() + ": " + doing + ": " + std::strerror(error);
  return error == ENOSPC || error == EDQUOT ? resource_exhausted(message) : unavailable(message);
}

}  // namespace

Status write_synced(const std::filesystem::path& file, std::span<const std::string_view> pieces) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return failed("can't be created", file);
  for (std::string_view content : pieces) {
    while (!content.empty()) {
      const ssize_t written = ::write(fd.get(), content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failed("can't be written", file);
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (::fsync(fd.get()) != 0) return failed("can't be synced", file);
  return {};
}

Status sync_folder(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return failed("can't be opened", folder);
  if (::fsync(fd.get()) != 0) return failed("can't be synced", folder);
  return {};
}

Status replace_file(const std::filesystem::path& file, std::span<const std::string_view> pieces) {
  const std::filesystem::path beside = file.string() + ".tmp";
  LEVADA_RETURN_IF_ERROR(write_synced(beside, pieces));
  if (::rename(beside.c_str(), file.c_str()) != 0) return failed("can't be replaced", file);
  return sync_folder(file.parent_path().empty() ? "." : file.parent_path());
}

Status replace_link(const std::filesystem::path& link, const std::filesystem::path& target) {
  const std::filesystem::path beside = link.string() + ".tmp";
  ::unlink(beside.c_str());
  if (::symlink(target.c_str(), beside.c_str()) != 0) return failed("can't be linked", beside);
  if (::rename(beside.c_str(), link.c_str()) != 0) return failed("can't be moved", link);
  return sync_folder(link.parent_path().empty() ? "." : link.parent_path());
}

}  // namespace levada
