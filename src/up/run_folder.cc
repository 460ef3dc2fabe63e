#include "up/run_folder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

namespace levada::up {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = "up.lock";
constexpr const char* kStatusName = "up.json";
constexpr std::uintmax_t kMaxStatusBytes = 16 << 20;

// Files by which a folder is known as a run's.
constexpr const char* kOwn[] = {kStatusName, "run.json", "windowed-capture.sqlite"};

bool is_a_runs(const fs::path& folder) {
  std::error_code error;
  bool empty = true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != kLockName) empty = false;
  }
  if (empty && !error) return true;
  for (const char* name : kOwn) {
    if (fs::exists(folder / name, error)) return true;
  }
  return false;
}

Status refused(const fs::path& folder, const std::string& what) {
  return Status(StatusCode::kFailedPrecondition, folder.string() + " " + what, "control_dir");
}

}  // namespace

Result<RunFolder> RunFolder::open(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    return refused(folder, "cannot be made a folder" + (error ? ": " + error.message() : std::string()));
  }
  if (!is_a_runs(folder)) return refused(folder, "holds files that are no run's: name another folder");
  Fd lock(::open((folder / kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return refused(folder, std::string("cannot be written to: ") + std::strerror(errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return refused(folder, "is in use by another `levada up`");
  RunFolder opened(folder, std::move(lock));
  Result<StatusFile> earlier = read_status(folder);
  if (earlier.ok()) opened.earlier_ = std::move(*earlier);
  return opened;
}

RunFolder::~RunFolder() {
  if (lock_.valid()) unlink((folder_ / kLockName).c_str());  // while it is still held: nobody else's is deleted
}

Status RunFolder::write_status(const RunState& state) const {
  const fs::path file = folder_ / kStatusName, part = folder_ / (std::string(kStatusName) + ".part");
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << status_json(state, getpid());
    if (!out.flush()) return unavailable("cannot write " + part.string());
  }
  std::error_code error;
  fs::rename(part, file, error);
  return error ? unavailable("cannot write " + file.string() + ": " + error.message()) : Status();
}

Status RunFolder::clear() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename() != kLockName) fs::remove_all(entry.path(), error);
    if (error) return unavailable("cannot delete " + entry.path().string() + ": " + error.message());
  }
  return {};
}

Result<StatusFile> read_status(const fs::path& folder) {
  const fs::path file = folder / kStatusName;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return not_found("there is no run in " + folder.string());
  if (fs::file_size(file, error) > kMaxStatusBytes) return data_loss(file.string() + " is too large");
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return parse_status(text, file.string());
}

bool is_held(const fs::path& folder) {
  const Fd lock(::open((folder / kLockName).c_str(), O_RDONLY | O_CLOEXEC));
  return lock.valid() && flock(lock.get(), LOCK_SH | LOCK_NB) != 0;
}

Result<std::int64_t> bindable_port(const std::string& host, std::int64_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const std::string where = host + ":" + std::to_string(port);
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return unavailable("cannot listen on " + where + ": the address is not known");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0) {
    return unavailable("cannot listen on " + where + ": " + std::strerror(errno) + "; name another port");
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  const auto number = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                  : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return std::int64_t{ntohs(number)};
}

}  // namespace levada::up
