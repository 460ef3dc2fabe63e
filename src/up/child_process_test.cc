#include "up/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace levada::up {
namespace {

using testing::HasSubstr;

constexpr auto kTick = std::chrono::milliseconds(5);

Result<ChildProcess> start_shell(const std::string& script, const std::vector<recipe::EnvEntry>& env = {}) {
  return ChildProcess::start({"/bin/sh", "-c", script}, env);
}

int wait_for(ChildProcess& child) {
  for (int i = 0; i < 2000; ++i) {
    if (const auto code = child.poll()) return *code;
    std::this_thread::sleep_for(kTick);
  }
  return -1;
}

// Everything the child prints until it closes its output.
std::string output_of(ChildProcess& child) {
  std::string text;
  char buffer[4096];
  for (int i = 0; i < 2000; ++i) {
    const ssize_t count = read(child.output(), buffer, sizeof buffer);
    if (count == 0) break;
    if (count > 0)
      text.append(buffer, static_cast<std::size_t>(count));
    else
      std::this_thread::sleep_for(kTick);
  }
  return text;
}

bool gone(pid_t pid) {
  for (int i = 0; i < 1000; ++i) {
    if (kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(kTick);
  }
  return false;
}

TEST(ChildProcess, TellsItsExitCode) {
  auto child = start_shell("exit 3");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(wait_for(*child), 3);
  EXPECT_EQ(child->poll(), 3);
  auto killed = start_shell("kill -9 $$");
  EXPECT_EQ(wait_for(*killed), 128 + SIGKILL);
}

TEST(ChildProcess, BothItsStreamsComeThroughThePipeAndItsInputIsEmpty) {
  auto child = start_shell("cat; echo out; echo err >&2");
  EXPECT_EQ(output_of(*child), "out\nerr\n");
  EXPECT_EQ(wait_for(*child), 0);
}

TEST(ChildProcess, TheEnvironmentIsTheLaunchersWithItsChanges) {
  setenv("LEVADA_TEST_KEPT", "kept", 1);
  setenv("LEVADA_TEST_GONE", "gone", 1);
  auto child = start_shell("echo $LEVADA_TEST_KEPT ${LEVADA_TEST_GONE-unset} $LEVADA_TEST_NEW",
                           {{"LEVADA_TEST_GONE", std::nullopt}, {"LEVADA_TEST_NEW", "new"}});
  EXPECT_EQ(output_of(*child), "kept unset new\n");
  wait_for(*child);
}

TEST(ChildProcess, LeadsASessionOfItsOwn) {
  auto child = start_shell("echo $$ $(cut -d' ' -f6 /proc/$$/stat)");
  const std::string pid = std::to_string(child->pid());
  EXPECT_EQ(output_of(*child), pid + " " + pid + "\n");
  wait_for(*child);
}

TEST(ChildProcess, AProgramThatIsNotThereIsAnErrorWithTheReason) {
  const auto child = ChildProcess::start({"/nonexistent/levada"}, {});
  EXPECT_EQ(child.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(child.status().message(), HasSubstr("No such file"));
}

TEST(ChildProcess, WhatALeaderLeavesBehindEndsWithIt) {
  auto child = start_shell("sleep 1000 >/dev/null 2>&1 & echo $!");
  const pid_t grandchild = std::atoi(output_of(*child).c_str());
  ASSERT_GT(grandchild, 0);
  EXPECT_EQ(wait_for(*child), 0);
  EXPECT_TRUE(gone(grandchild));
}

TEST(ChildProcess, DroppingOneThatRunsEndsItsGroup) {
  pid_t pid = 0;
  {
    auto child = start_shell("trap '' TERM; sleep 1000");
    pid = child->pid();
  }
  EXPECT_TRUE(gone(pid));
}

TEST(ChildProcess, ALauncherKilledOutrightTakesItsChildrenAlong) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    auto child = ChildProcess::start({"/bin/sleep", "1000"}, {});
    const pid_t pid = child.ok() ? child->pid() : -1;
    [[maybe_unused]] const ssize_t told = write(pipe_ends[1], &pid, sizeof pid);
    kill(getpid(), SIGKILL);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(pipe_ends[0], &grandchild, sizeof grandchild), ssize_t(sizeof grandchild));
  waitpid(launcher, nullptr, 0);
  ASSERT_GT(grandchild, 0);
  // An orphan is reaped by whoever adopts it; until then it may be a zombie, which is as good as gone.
  bool ended = false;
  for (int i = 0; i < 1000 && !ended; ++i) {
    ended = kill(grandchild, 0) != 0;
    if (std::FILE* stat = std::fopen(("/proc/" + std::to_string(grandchild) + "/stat").c_str(), "r")) {
      char state = 0;
      if (std::fscanf(stat, "%*d %*s %c", &state) == 1 && state == 'Z') ended = true;
      std::fclose(stat);
    }
    std::this_thread::sleep_for(kTick);
  }
  EXPECT_TRUE(ended);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace levada::up
