#include "up/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace levada::up {
namespace {

Status failed(const std::string& what, int error) { return unavailable(what + ": " + std::strerror(error)); }

// The launcher's environment with `changes` made, as "NAME=value".
std::vector<std::string> environment(const std::vector<recipe::EnvEntry>& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(), [&](const auto& c) { return c.name == name; });
    if (!changed) entries.emplace_back(text);
  }
  for (const recipe::EnvEntry& change : changes) {
    if (change.value) entries.push_back(change.name + "=" + *change.value);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// Runs between fork and exec: async-signal-safe calls only. On failure errno goes to `report`.
[[noreturn]] void become(char* const* argv, char* const* env, int input, int output, int report, pid_t launcher) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launcher) _exit(127);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvpe(argv[0], argv, env);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(report, &error, sizeof error);
  _exit(127);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& argv,
                                         const std::vector<recipe::EnvEntry>& env) {
  LEVADA_CHECK(!argv.empty(), "a command has at least its program");
  std::vector<std::string> words = argv, entries = environment(env);
  const std::vector<char*> word_pointers = pointers(words), entry_pointers = pointers(entries);
  int output[2], report[2];
  if (pipe2(output, O_CLOEXEC) != 0) return failed("cannot make a pipe for " + argv[0], errno);
  Fd output_read(output[0]), output_write(output[1]);
  if (pipe2(report, O_CLOEXEC) != 0) return failed("cannot make a pipe for " + argv[0], errno);
  Fd report_read(report[0]), report_write(report[1]);
  const Fd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failed("cannot start " + argv[0], errno);
  if (pid == 0) {
    become(word_pointers.data(), entry_pointers.data(), input.get(), output[1], report[1], launcher);
  }
  report_write.reset();
  int error = 0;
  if (read(report_read.get(), &error, sizeof error) == sizeof error) {
    waitpid(pid, nullptr, 0);
    return failed("cannot start " + argv[0], error);
  }
  fcntl(output_read.get(), F_SETFL, O_NONBLOCK);
  return ChildProcess(pid, std::move(output_read));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)), code_(other.code_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_, other.output_);
  std::swap(code_, other.code_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  signal_group(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::signal_group(int signal) const {
  if (running()) kill(-pid_, signal);
}

std::optional<int> ChildProcess::poll() {
  if (!running()) return code_;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  // The leader is a zombie, which keeps the group's id ours.
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

}  // namespace levada::up
