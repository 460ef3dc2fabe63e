#include "device/system_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace levada::device {
namespace {

SystemMemory read_meminfo() {
  SystemMemory memory;
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  std::int64_t kilobytes = 0;
  while (in >> key >> kilobytes && std::getline(in, unit)) {
    if (key == "MemTotal:") memory.total_bytes = kilobytes * 1024;
    if (key == "MemAvailable:") memory.available_bytes = kilobytes * 1024;
  }
  return memory;
}

// The unified hierarchy's limit of our own group, where a container mounts it. "max" means none.
std::int64_t read_number(const char* path, std::int64_t fallback) {
  std::ifstream in(path);
  std::int64_t value = 0;
  return in >> value ? value : fallback;
}

}  // namespace

SystemMemory read_system_memory() {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  SystemMemory memory = read_meminfo();
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max", kNone);
  if (limit != kNone) {
    const std::int64_t used = read_number("/sys/fs/cgroup/memory.current", 0);
    memory.total_bytes = std::min(memory.total_bytes, limit);
    memory.available_bytes = std::clamp<std::int64_t>(limit - used, 0, memory.available_bytes);
  }
  return memory;
}

}  // namespace levada::device
