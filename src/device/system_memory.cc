#include "device/system_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace levada::device {
namespace {

SystemMemory read_meminfo(const std::filesystem::path& file) {
  SystemMemory memory;
  std::ifstream in(file);
  std::string key, unit;
  std::int64_t kilobytes = 0;
  while (in >> key >> kilobytes && std::getline(in, unit)) {
    if (key == "MemTotal:") memory.total_bytes = kilobytes * 1024;
    if (key == "MemAvailable:") memory.available_bytes = kilobytes * 1024;
  }
  return memory;
}

std::int64_t read_number(const std::filesystem::path& file, std::int64_t fallback) {
  std::ifstream in(file);
  std::int64_t value = 0;
  return in >> value ? value : fallback;
}

// File pages are charged to the group that read them first, a checkpoint's too, and given up before anything is killed.
std::int64_t read_page_cache(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string key;
  std::int64_t value = 0, bytes = 0;
  while (in >> key >> value)
    if (key == "inactive_file" || key == "active_file") bytes += value;
  return bytes;
}

}  // namespace

SystemMemory read_system_memory(const std::filesystem::path& root) {
  SystemMemory memory = read_meminfo(root / "proc/meminfo");
  // The unified hierarchy's limit of our own group, where a container mounts it. "max" means none.
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::filesystem::path group = root / "sys/fs/cgroup";
  const std::int64_t limit = read_number(group / "memory.max", kNone);
  if (limit != kNone) {
    const std::int64_t charged = read_number(group / "memory.current", 0);
    const std::int64_t used = std::max<std::int64_t>(charged - read_page_cache(group / "memory.stat"), 0);
    memory.total_bytes = std::min(memory.total_bytes, limit);
    memory.available_bytes = std::clamp<std::int64_t>(limit - used, 0, memory.available_bytes);
  }
  return memory;
}

}  // namespace levada::device
