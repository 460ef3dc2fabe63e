#include "up/role_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace levada::up {
namespace {

constexpr std::size_t kMaxPrinted = 1 << 20;

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written <= 0 && errno != EINTR) return;  // a full disk must not stop the run
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

Result<RoleOutput> RoleOutput::open(const std::string& log_path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(log_path).parent_path(), error);
  Fd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return unavailable("cannot write the log " + log_path + ": " + std::strerror(errno));
  return RoleOutput(std::move(log));
}

bool RoleOutput::drain(int pipe, const std::function<void(const Event&)>& on_event) {
  char buffer[64 << 10];
  // Bounded, so that a role that prints without end does not keep the supervisor from the others.
  for (int rounds = 0; rounds < 16; ++rounds) {
    const ssize_t count = ::read(pipe, buffer, sizeof buffer);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    std::string_view bytes(buffer, static_cast<std::size_t>(count));
    write_all(log_.get(), bytes);
    for (std::size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      if (!overlong_) take_line(partial_ + std::string(bytes.substr(0, end)), on_event);
      partial_.clear();
      overlong_ = false;
    }
    if (partial_.size() + bytes.size() > kMaxPrinted) overlong_ = true;
    if (overlong_)
      partial_.clear();
    else
      partial_ += bytes;
  }
  return true;
}

void RoleOutput::take_line(std::string_view line, const std::function<void(const Event&)>& on_event) {
  if (const std::optional<Event> event = parse_event(line)) return on_event(*event);
  if (line.empty()) return;
  tail_ = line.substr(0, 400);
}

}  // namespace levada::up
