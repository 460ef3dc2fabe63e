#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "support/temporary_folder.h"

namespace levada {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& content) { return temporary_.write("file", content); }
  static std::string text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(MappedFileTest, BytesCoverTheFile) {
  const auto file = MappedFile::open(write("levada"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(text_of(*file), "levada");
}

TEST_F(MappedFileTest, AnEmptyFileGivesEmptyBytes) {
  const auto file = MappedFile::open(write(""));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, MovingKeepsAddresses) {
  auto file = MappedFile::open(write("levada"));
  const std::byte* address = file->bytes().data();
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_EQ(text_of(moved), "levada");
}

TEST_F(MappedFileTest, DroppedPagesReadTheSameAgain) {
  const std::string content(100'000, 'x');
  const auto file = MappedFile::open(write(content));
  file->drop_resident(file->bytes().subspan(5'000, 50'000));
  file->drop_resident({});
  EXPECT_EQ(text_of(*file), content);
}

// Pages of the process that are resident and belong to files, from /proc/self/statm.
std::int64_t resident_file_pages() {
  std::int64_t total = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> total >> resident >> shared;
  return shared;
}

TEST_F(MappedFileTest, DroppedPagesLeaveTheResidentSet) {
  const std::int64_t pages = 4096;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto file = MappedFile::open(write(std::string(static_cast<std::size_t>(pages * page), 'x')));
  EXPECT_EQ(text_of(*file).front(), 'x');  // reads every page
  const std::int64_t before = resident_file_pages();
  file->drop_resident(file->bytes());
  EXPECT_LT(resident_file_pages(), before - pages * 9 / 10);
}

TEST_F(MappedFileTest, WhatCannotBeMappedIsNamed) {
  EXPECT_EQ(MappedFile::open(folder_ / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open(write("x") / "below").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open(folder_).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(folder_ / "pipe").status().code(), StatusCode::kInvalidArgument);
}

TEST(FdTest, TheLastOwnerClosesAndMovingHandsOn) {
  int descriptor = -1;
  {
    Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    descriptor = first.get();
    Fd second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_EQ(second.get(), descriptor);
    EXPECT_NE(::fcntl(descriptor, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

TEST(FdTest, AReleasedDescriptorStaysOpen) {
  Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int descriptor = fd.release();
  fd.reset();
  EXPECT_NE(::fcntl(descriptor, F_GETFD), -1);
  ::close(descriptor);
}

}  // namespace
}  // namespace levada
