#include "up/run_folder.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <fstream>

namespace levada::up {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() : folder_(fs::path(testing::TempDir()) / ("run_folder_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~RunFolderTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(RunFolderTest, IsMadeLockedAndLeftWithoutItsLock) {
  {
    const auto first = RunFolder::open(folder_);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_TRUE(is_held(folder_));
    const auto second = RunFolder::open(folder_);
    EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(second.status().message(), HasSubstr("in use by another"));
  }
  EXPECT_FALSE(is_held(folder_));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(RunFolderTest, AFolderOfOtherFilesIsNotTouched) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "thesis.tex") << "x";
  EXPECT_THAT(RunFolder::open(folder_).status().message(), HasSubstr("holds files that are no run's"));
  EXPECT_TRUE(fs::exists(folder_ / "thesis.tex"));
}

TEST_F(RunFolderTest, AnEarlierRunIsKnownAgain) {
  {
    const auto first = RunFolder::open(folder_);
    EXPECT_FALSE(first->earlier());
    RunState state("demo", 4, {});
    state.phase = "completed";
    ASSERT_TRUE(first->write_status(state).ok());
  }
  const auto again = RunFolder::open(folder_);
  ASSERT_TRUE(again.ok() && again->earlier());
  EXPECT_EQ(again->earlier()->phase, "completed");
  ASSERT_TRUE(again->clear().ok());
  EXPECT_FALSE(read_status(folder_).ok());
  EXPECT_TRUE(is_held(folder_));
}

TEST_F(RunFolderTest, StatusOfNothingIsNotFound) {
  EXPECT_EQ(read_status(folder_).status().code(), StatusCode::kNotFound);
}

TEST(BindablePort, ZeroGivesAFreeOneAndATakenOneIsNamed) {
  const auto free = bindable_port("127.0.0.1", 0);
  ASSERT_TRUE(free.ok()) << free.status().to_string();
  EXPECT_GT(*free, 0);
  const Fd taken(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  EXPECT_THAT(bindable_port("127.0.0.1", ntohs(address.sin_port)).status().message(), HasSubstr("127.0.0.1:" + port));
}

}  // namespace
}  // namespace levada::up
