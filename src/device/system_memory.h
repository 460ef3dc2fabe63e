// What: how much memory this process may still take, as the kernel and its control group see it.
// Owner: none.
// Thread: any.
// Invariant: the smaller of /proc/meminfo and the control group's limit; 0 when neither can be read.
#pragma once

#include <cstdint>
#include <filesystem>

namespace levada::device {

struct SystemMemory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;
};

// `root` is where proc and sys are looked for; tests bring a tree of their own.
SystemMemory read_system_memory(const std::filesystem::path& root = "/");

}  // namespace levada::device
