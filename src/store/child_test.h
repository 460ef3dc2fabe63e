// What: Doomed, a test's other process until it is killed; Child, one forked by a test, which does some work and then waits.
// Owner: the test; they end with it.
// Thread: made before the test has other threads, which a fork would lose.
// Invariant: they end by SIGKILL alone, as a process that crashes does.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "base/fd.h"

namespace levada::store {

class Doomed {
 public:
  Doomed() = default;
  explicit Doomed(pid_t process) : process_(process) {}
  Doomed(Doomed&& other) noexcept : process_(std::exchange(other.process_, 0)) {}
  Doomed& operator=(Doomed&& other) noexcept {
    std::swap(process_, other.process_);
    return *this;
  }
  ~Doomed() { kill(); }
  void signal(int number) const { ::kill(process_, number); }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

class Child {
 public:
  template <class Work>
  explicit Child(Work work) {
    int done[2], go[2];
    LEVADA_CHECK(::pipe(done) == 0 && ::pipe(go) == 0, "pipes");
    const pid_t process = ::fork();
    if (process == 0) {
      char url[200] = {};
      if (::read(go[0], url, sizeof url - 1) < 0) ::_exit(1);
      work(std::string(url), done[1]);
      ::pause();
      ::_exit(0);
    }
    process_ = Doomed(process);
    go_.reset(go[1]);
    done_.reset(done[0]);
    ::close(done[1]);
    ::close(go[0]);
  }
  void begin(const std::string& url) {
    LEVADA_CHECK(::write(go_.get(), url.c_str(), url.size() + 1) > 0, "the child is gone");
  }
  std::string wait() {
    char text[200] = {};
    return ::read(done_.get(), text, sizeof text - 1) > 0 ? text : "";
  }
  void kill() { process_.kill(); }

 private:
  Doomed process_;
  Fd go_, done_;
};

}  // namespace levada::store
