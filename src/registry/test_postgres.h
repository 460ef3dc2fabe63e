// What: TestPostgres, a private PostgreSQL cluster in a temporary folder, reached through a Unix socket only.
// Owner: the test that needs it; its destructor stops the server and removes the folder.
// Thread: the test's.
// Invariant: a test that cannot start the server fails: PostgreSQL is one of the project's packages (scripts/setup.sh).
// PostgreSQL refuses to run as root; as root the cluster runs as the user `postgres`.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace levada::registry {

class TestPostgres {
 public:
  TestPostgres() {
    char pattern[] = "/tmp/levada_pg_XXXXXX";
    const char* made = mkdtemp(pattern);
    if (made == nullptr) return;
    folder_ = made;
    if (geteuid() == 0) shell("chown postgres " + folder_);
    const std::string data = folder_ + "/data";
    // No durable start-up: the cluster lives for this test. Commits are as durable as ever.
    running_ = as_user(binary("initdb") + " -D " + data + " -U levada -A trust --no-sync -E UTF8 --locale=C") &&
               as_user(binary("pg_ctl") + " -D " + data + " -w -t 60 -l " + folder_ + "/log -o \"-k " + folder_ +
                       " -c listen_addresses=''\" start");
  }
  ~TestPostgres() {
    if (running_) as_user(binary("pg_ctl") + " -D " + folder_ + "/data -m immediate -w stop");
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  TestPostgres(const TestPostgres&) = delete;

  bool running() const { return running_; }
  // A database of its own, empty.
  std::string fresh_database() {
    const std::string name = "test" + std::to_string(++databases_);
    EXPECT_TRUE(as_user(binary("createdb") + " -h " + folder_ + " -U levada " + name));
    return "host=" + folder_ + " user=levada dbname=" + name;
  }
  // Kills the server as a power cut would, and starts it again.
  bool crash_and_restart() {
    const std::string data = folder_ + "/data";
    as_user(binary("pg_ctl") + " -D " + data + " -m immediate -w stop");
    running_ = as_user(binary("pg_ctl") + " -D " + data + " -w -t 60 -l " + folder_ + "/log -o \"-k " + folder_ +
                       " -c listen_addresses=''\" start");
    return running_;
  }

 private:
  static bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }
  static bool as_user(const std::string& command) {
    if (geteuid() != 0) return shell(command);
    return shell("cd /tmp && runuser -u postgres -- sh -c '" + command + "'");
  }
  // Debian keeps the server's programs out of PATH, one folder per version.
  static std::string binary(const std::string& name) {
    for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql")) {
      const auto path = version.path() / "bin" / name;
      if (std::filesystem::exists(path)) return path.string();
    }
    return name;
  }

  std::string folder_;
  bool running_ = false;
  int databases_ = 0;
};

// One cluster for all tests of the process.
inline TestPostgres& test_postgres() {
  static TestPostgres cluster;
  return cluster;
}

}  // namespace levada::registry
