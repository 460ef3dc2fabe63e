#include "device/system_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace levada::device {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = 1 << 20;

// A tree with the files of /proc and /sys that are read: 1,000 MiB of memory, 800 MiB of it available.
class SystemMemoryTest : public testing::Test {
 protected:
  SystemMemoryTest() {
    write("proc/meminfo", "MemTotal: 1024000 kB\nMemFree: 1000 kB\nMemAvailable: 819200 kB\nHugePages_Total: 0\n");
  }
  ~SystemMemoryTest() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void limit(std::int64_t limit_mib, std::int64_t charged_mib) {
    write("sys/fs/cgroup/memory.max", std::to_string(limit_mib * kMiB) + "\n");
    write("sys/fs/cgroup/memory.current", std::to_string(charged_mib * kMiB) + "\n");
  }
  void page_cache(std::int64_t inactive_mib, std::int64_t active_mib) {
    write("sys/fs/cgroup/memory.stat", "anon 4096\nfile 999\ninactive_file " + std::to_string(inactive_mib * kMiB) +
                                           "\nactive_file " + std::to_string(active_mib * kMiB) + "\n");
  }
  std::int64_t total_mib() const { return read_system_memory(root_).total_bytes / kMiB; }
  std::int64_t available_mib() const { return read_system_memory(root_).available_bytes / kMiB; }

  const fs::path root_ = fs::path(testing::TempDir()) / ("levada_memory_" + std::to_string(::getpid()));
};

TEST_F(SystemMemoryTest, WithoutAGroupLimitTheMachineCounts) {
  EXPECT_EQ(total_mib(), 1000);
  EXPECT_EQ(available_mib(), 800);
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "999999999\n");
  EXPECT_EQ(available_mib(), 800);
}

TEST_F(SystemMemoryTest, TheGroupsLimitCountsWhereItIsTheSmaller) {
  limit(500, 100);
  EXPECT_EQ(total_mib(), 500);
  EXPECT_EQ(available_mib(), 400);
  limit(5000, 100);
  EXPECT_EQ(total_mib(), 1000);
  EXPECT_EQ(available_mib(), 800);
}

// Reading a checkpoint fills the page cache up to the limit; that memory can still be had.
TEST_F(SystemMemoryTest, PageCacheIsNotMemoryInUse) {
  limit(500, 490);
  page_cache(150, 240);
  EXPECT_EQ(available_mib(), 400);
}

TEST_F(SystemMemoryTest, OddNumbersStayBetweenNothingAndTheLimit) {
  limit(500, 100);
  page_cache(400, 400);
  EXPECT_EQ(available_mib(), 500);
  page_cache(0, 0);
  limit(500, 700);
  EXPECT_EQ(available_mib(), 0);
}

TEST_F(SystemMemoryTest, NothingReadableIsZero) {
  const SystemMemory memory = read_system_memory(root_ / "nowhere");
  EXPECT_EQ(memory.total_bytes, 0);
  EXPECT_EQ(memory.available_bytes, 0);
}

}  // namespace
}  // namespace levada::device
