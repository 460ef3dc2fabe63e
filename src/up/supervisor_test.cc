// Whole runs with shell scripts as roles: they crash, hang, are killed, start slowly, and leave things behind.
#include "up/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace levada::up {
namespace {

namespace fs = std::filesystem;
using recipe::RoleKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class SilentView final : public View {
 public:
  void say(const std::string& line) override { said.push_back(line); }
  void show(const RunState&) override {}
  void finish(const RunState&) override {}
  std::vector<std::string> said;
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest()
      : folder_(fs::path(testing::TempDir()) / ("supervisor_" + std::to_string(getpid()))), state_("demo", 4, {}) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    plan_.shutdown_grace_s = 5;
    hooks_.healthy = [](const std::string& file) { return fs::exists(file); };
    hooks_.drain = [this] { ++drains_; };
  }
  ~SupervisorTest() override { fs::remove_all(folder_); }

  void add(RoleKind kind, const std::string& label, const std::string& script) {
    recipe::Command command;
    command.label = label;
    command.kind = kind;
    command.argv = {"/bin/sh", "-c", "cd " + folder_.string() + "; " + script};
    command.log_path = (folder_ / "logs" / (label + ".log")).string();
    command.startup_timeout_s = 10;
    if (kind == RoleKind::kConsumer) state_.add_trainer(label, 2);
    state_.add_role(label, kind);
    (kind == RoleKind::kService ? plan_.services : plan_.commands).push_back(command);
  }
  // A service that answers at once and says when it is stopped. It waits in a way that a signal ends.
  void add_service(const std::string& script = "", const std::string& label = "server-0") {
    add(RoleKind::kService, label,
        "trap 'echo " + label + " >>stops; exit 0' TERM; echo $$ >" + label + ".pid; " + script +
            " touch up; while :; do sleep 0.05; done");
    plan_.services.back().health_url = (folder_ / "up").string();
  }
  static std::string wait_until_stopped(const std::string& label) {
    return "trap 'echo " + label + " >>stops; exit 0' TERM; touch " + label + ".runs; while :; do sleep 0.05; done";
  }

  int run() {
    StopSignals signals;
    Supervisor supervisor(plan_, options_, hooks_, clock_, signals, view_, state_);
    return supervisor.run();
  }
  std::string text_of(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  bool is_gone(const std::string& pid_file) const { return kill(std::atoi(text_of(pid_file).c_str()), 0) != 0; }
  std::string state_of(const std::string& label) const {
    for (const RoleState& role : state_.roles()) {
      if (role.label == label) return role.state;
    }
    return "";
  }

  const fs::path folder_;
  recipe::LaunchPlan plan_;
  SupervisorOptions options_;
  SupervisorHooks hooks_;
  SystemClock clock_;
  SilentView view_;
  RunState state_;
  int drains_ = 0;
};

constexpr const char* kDrained =
    R"(echo '{"event":"snapshot","drained":true,"total_samples":4,"entries":{"absent":4},"counters":{"capture_count":4},)"
    R"("consumers":[{"consumer_id":"b4","state":"completed","cursor":4,"step":2}]}';)";
constexpr const char* kTrained =
    R"(echo '{"event":"step","consumer":"b4","step":1,"cursor":2,"loss":3.5}'; echo '{"event":"step","consumer":"b4","step":2,"cursor":4,"loss":2.5}';)"
    R"(echo '{"event":"checkpoint","consumer":"b4","step":2,"path":"out/b4"}';)";

TEST_F(SupervisorTest, AGoodRunEndsByItselfAndLeavesNothing) {
  add_service();
  add(RoleKind::kConsumer, "b4", kTrained);
  add(RoleKind::kProducer, "producer", kDrained);
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(state_.failure, "");
  EXPECT_TRUE(state_.ok()) << gate_table(state_);
  EXPECT_TRUE(is_gone("server-0.pid"));
  EXPECT_EQ(text_of("stops"), "server-0\n");
  EXPECT_THAT(text_of("logs/b4.log"), HasSubstr("\"step\":2"));
}

TEST_F(SupervisorTest, ConsumersStartOnceServicesAnswerAndTheProducerLast) {
  add_service("sleep 0.5; echo server-0 >>starts;");
  add(RoleKind::kConsumer, "b4", "echo b4 >>starts; sleep 0.2");
  add(RoleKind::kProducer, "producer", "sleep 0.1; echo producer >>starts");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(text_of("starts"), "server-0\nb4\nproducer\n");
}

TEST_F(SupervisorTest, AServiceThatIsNotReadyInTimeEndsTheRun) {
  add(RoleKind::kService, "server-0", wait_until_stopped("server-0"));
  plan_.services.back().health_url = (folder_ / "never").string();
  plan_.services.back().startup_timeout_s = 0.4;
  add(RoleKind::kConsumer, "b4", "touch started");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("server-0 was not ready within"));
  EXPECT_FALSE(fs::exists(folder_ / "started"));
}

TEST_F(SupervisorTest, AServiceThatDiesIsNamedWithItsLastWords) {
  add(RoleKind::kService, "server-0", "echo the port is taken; exit 2");
  plan_.services.back().health_url = (folder_ / "never").string();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("server-0 ended with code 2"));
  EXPECT_THAT(state_.failure, HasSubstr("the port is taken"));
}

TEST_F(SupervisorTest, WhatAKilledRoleSaidLastIsNoReason) {
  add(RoleKind::kService, "server-0", "echo all is well; kill -9 $$");
  plan_.services.back().health_url = (folder_ / "never").string();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("server-0 was killed by signal 9; see "));
  EXPECT_THAT(state_.failure, Not(HasSubstr("all is well")));
}

TEST_F(SupervisorTest, AServiceThatEndsWellDuringTheRunFailsItToo) {
  add_service();
  plan_.services[0].argv[2] = "cd " + folder_.string() + "; touch up; sleep 0.5";
  add(RoleKind::kConsumer, "b4", wait_until_stopped("b4"));
  add(RoleKind::kProducer, "producer", wait_until_stopped("producer"));
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("server-0 ended with code 0"));
  EXPECT_EQ(text_of("stops"), "b4\nproducer\n");
}

TEST_F(SupervisorTest, WithContinueTheOthersFinishAndTheRegistryIsAskedToDrain) {
  options_.patience_s = 3;
  add_service();
  add(RoleKind::kConsumer, "b4", "sleep 0.1; exit 7");
  add(RoleKind::kConsumer, "b8", "sleep 0.4; touch b8.finished");
  add(RoleKind::kProducer, "producer", "while [ ! -e drained ]; do sleep 0.05; done");
  hooks_.drain = [this] {
    ++drains_;
    std::ofstream(folder_ / "drained") << "x";
  };
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("consumer b4 ended with code 7"));
  EXPECT_TRUE(fs::exists(folder_ / "b8.finished"));
  EXPECT_EQ(drains_, 1);
  EXPECT_FALSE(state_.ok());
}

TEST_F(SupervisorTest, WithAbortAllOneFailureStopsTheOthers) {
  plan_.abort_on_consumer_failure = true;
  add_service();
  add(RoleKind::kConsumer, "b4", "while [ ! -e b8.runs ]; do sleep 0.05; done; exit 7");
  add(RoleKind::kConsumer, "b8", wait_until_stopped("b8"));
  add(RoleKind::kProducer, "producer", "trap 'echo producer >>stops; exit 0' TERM; while :; do sleep 0.05; done");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(state_of("b4"), "failed");
  EXPECT_EQ(state_of("b8"), "stopped");
  EXPECT_EQ(text_of("stops"), "b8\nproducer\nserver-0\n");
}

TEST_F(SupervisorTest, AProducerThatFailsStopsTheRun) {
  add_service();
  add(RoleKind::kConsumer, "b4", wait_until_stopped("b4"));
  add(RoleKind::kProducer, "producer", "while [ ! -e b4.runs ]; do sleep 0.05; done; echo disk full; exit 1");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("the producer ended with code 1"));
  EXPECT_THAT(state_.failure, HasSubstr("disk full"));
}

TEST_F(SupervisorTest, AConsumerThatStaysWhenAllIsDoneIsNotWaitedForForEver) {
  options_.patience_s = 0.5;
  add_service();
  add(RoleKind::kConsumer, "b4", wait_until_stopped("b4"));
  add(RoleKind::kProducer, "producer", "true");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.failure, HasSubstr("a consumer did not end"));
}

TEST_F(SupervisorTest, ARunWithoutConsumersLastsAsLongAsItsOneRole) {
  options_.patience_s = 0.2;
  add_service();
  add(RoleKind::kProducer, "flywheel", "sleep 1; touch finished");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(state_.failure, "");
  EXPECT_TRUE(fs::exists(folder_ / "finished"));
}

TEST_F(SupervisorTest, OneThatIgnoresItsStopIsKilledAfterTheGraceAndNamed) {
  plan_.shutdown_grace_s = 0.4;
  options_.patience_s = 0.2;
  add(RoleKind::kConsumer, "b4", "trap '' TERM; echo $$ >b4.pid; while :; do sleep 0.05; done");
  add(RoleKind::kProducer, "producer", "while [ ! -e b4.pid ]; do sleep 0.05; done");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(state_.leftovers, ElementsAre(HasSubstr("b4 (killed")));
  EXPECT_TRUE(is_gone("b4.pid"));
}

TEST_F(SupervisorTest, ASignalStopsConsumersThenProducerThenServices) {
  add_service();
  add(RoleKind::kConsumer, "b4", wait_until_stopped("b4"));
  // Three interrupts: the second and third come while the stop is under way and change nothing.
  add(RoleKind::kProducer, "producer",
      "trap 'kill -INT $PPID; sleep 0.3; kill -INT $PPID; echo producer >>stops; exit 0' TERM; "
      "while [ ! -e b4.runs ]; do sleep 0.05; done; kill -INT $PPID; while :; do sleep 0.05; done");
  EXPECT_EQ(run(), SIGINT);
  EXPECT_EQ(text_of("stops"), "b4\nproducer\nserver-0\n");
  EXPECT_THAT(state_.leftovers, ElementsAre());
}

TEST_F(SupervisorTest, ASignalWhileServicesStartStopsThem) {
  add(RoleKind::kService, "server-0", "kill -TERM $PPID; " + wait_until_stopped("server-0"));
  plan_.services.back().health_url = (folder_ / "never").string();
  EXPECT_EQ(run(), SIGTERM);
  EXPECT_EQ(state_of("server-0"), "stopped");
}

TEST_F(SupervisorTest, ARoleKilledOutrightIsStartedAgainWhenTheRecipeAllowsIt) {
  plan_.max_restarts = 1;
  add_service();
  add(RoleKind::kConsumer, "b4", "if [ -e tried ]; then exit 0; fi; touch tried; kill -9 $$");
  add(RoleKind::kProducer, "producer", "if [ -e twice ]; then exit 0; fi; touch twice; sleep 0.2; exit 1");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(state_.failure, "");
  EXPECT_EQ(state_.roles()[1].restarts, 1);
  EXPECT_EQ(state_.roles()[2].restarts, 1);
}

TEST_F(SupervisorTest, AServiceThatWasStartedAgainIsReadyOnceItAnswers) {
  plan_.max_restarts = 1;
  bool again = false;
  hooks_.changed = [&](const RunState& state) {
    const RoleState& service = state.roles()[0];
    again = again || (service.restarts == 1 && service.state == "ready");
    if (again) std::ofstream(folder_ / "seen");
  };
  add(RoleKind::kService, "server-0",
      "if [ ! -e once ]; then touch once up; while [ ! -e b4.runs ]; do sleep 0.05; done; rm up; kill -9 $$; fi; "
      "trap 'exit 0' TERM; sleep 0.3; touch up; while :; do sleep 0.05; done");
  plan_.services.back().health_url = (folder_ / "up").string();
  add(RoleKind::kConsumer, "b4",
      "touch b4.runs; for i in $(seq 200); do [ -e seen ] && exit 0; sleep 0.05; done; exit 1");
  add(RoleKind::kProducer, "producer", "true");
  EXPECT_EQ(run(), 0);
  EXPECT_TRUE(again);
}

TEST_F(SupervisorTest, WithoutExitWhenDoneServicesGoOnUntilASignal) {
  options_.exit_when_done = false;
  bool done = false;
  hooks_.done = [&](const RunState&) {
    done = true;
    kill(getpid(), SIGTERM);
  };
  add_service();
  add(RoleKind::kConsumer, "b4", "true");
  add(RoleKind::kProducer, "producer", "true");
  EXPECT_EQ(run(), SIGTERM);
  EXPECT_TRUE(done);
  EXPECT_EQ(state_.phase, "serving");
  EXPECT_EQ(text_of("stops"), "server-0\n");
}

TEST_F(SupervisorTest, WithoutTrainingOnlyServicesRun) {
  options_.train = false;
  options_.exit_when_done = false;
  hooks_.changed = [&](const RunState& state) {
    if (state.phase == "serving") kill(getpid(), SIGINT);
  };
  add_service();
  add(RoleKind::kConsumer, "b4", "touch started");
  EXPECT_EQ(run(), SIGINT);
  EXPECT_FALSE(fs::exists(folder_ / "started"));
}

TEST_F(SupervisorTest, SocketsOfKilledServicesAreRemoved) {
  plan_.sockets = {(folder_ / "capture-0.sock").string()};
  add_service("touch capture-0.sock;");
  EXPECT_EQ(run(), 0);
  EXPECT_FALSE(fs::exists(folder_ / "capture-0.sock"));
}

TEST_F(SupervisorTest, ARoleThatPrintsWithoutEndStopsNobody) {
  add_service();
  add(RoleKind::kConsumer, "b4", "head -c 3000000 /dev/zero; echo; head -c 3000000 /dev/zero | tr '\\0' '\\n'");
  add(RoleKind::kProducer, "producer", "true");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(state_.failure, "");
  EXPECT_EQ(fs::file_size(folder_ / "logs/b4.log"), 6'000'001u);
}

}  // namespace
}  // namespace levada::up
