#include "serve/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

#include "base/metrics.h"
#include "http/client.h"
#include "serve/error.h"

namespace levada::serve {
namespace {

using ::testing::HasSubstr;

// A server whose routes hand jobs to an Intake. /read?bytes=N submits a body said to be of N bytes; those jobs wait
// until release().
class IntakeTest : public ::testing::Test {
 protected:
  IntakeTest() {
    server_->route("GET", "/throw", [this](http::Request, http::Responder responder) {
      submit(responder, 1,
             [responder](simdjson::dom::parser&) -> std::function<void()> { throw std::runtime_error("no luck"); });
    });
    server_->route("GET", "/throw-oddly", [this](http::Request, http::Responder responder) {
      submit(responder, 1, [responder](simdjson::dom::parser&) -> std::function<void()> { throw 7; });
    });
    server_->route("GET", "/read", [this](http::Request request, http::Responder responder) {
      submit(responder, std::stoul(request.query["bytes"]), [this, responder](simdjson::dom::parser&) {
        released_.wait();
        return [responder] { responder.respond(200, "text/plain", "read"); };
      });
      ++submitted_;
    });
    io_ = Thread("io", [this] { server_->run(); });
  }
  ~IntakeTest() override {
    release();
    server_->stop(std::chrono::milliseconds(0));
    io_.join();
  }

  void submit(const http::Responder& responder, std::size_t bytes, Intake::Job job) {
    if (const Status taken = intake_.submit(bytes, std::move(job)); !taken.ok()) respond_error(responder, taken);
  }
  void release() {
    if (released_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) release_.set_value();
  }
  http::ClientResponse get(const std::string& target) {
    return http::Client("127.0.0.1", server_->port()).get(target).value();
  }
  static std::string read(std::size_t bytes) { return "/read?bytes=" + std::to_string(bytes); }

  Metrics metrics_;
  std::unique_ptr<http::Server> server_ = http::Server::listen({.port = 0}, metrics_).value();
  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future().share();
  std::atomic<int> submitted_ = 0;
  Intake intake_{*server_};
  Thread io_;
};

TEST_F(IntakeTest, AJobThatThrowsIsAnswered500AndTheNextOneRuns) {
  release();
  for (const char* path : {"/throw", "/throw-oddly", "/throw"}) {
    const http::ClientResponse answer = get(path);
    EXPECT_EQ(answer.status, 500) << path;
    EXPECT_THAT(answer.body, HasSubstr("internal_server_error"));
  }
  EXPECT_EQ(get(read(1)).status, 200) << "the lane goes on";
}

TEST_F(IntakeTest, BodiesThatWaitAreBoundedByTheirBytesOverBothLanes) {
  constexpr std::size_t kBudget = Intake::kMaxWaitingBytes;
  std::vector<int> statuses(2);
  {
    std::vector<Thread> askers;
    askers.emplace_back("long", [&] { statuses[0] = get(read(kBudget - 10)).status; });
    askers.emplace_back("short", [&] { statuses[1] = get(read(10)).status; });
    while (submitted_ < 2) std::this_thread::yield();
    for (const std::size_t bytes : {std::size_t{1}, kBudget}) {
      const http::ClientResponse refused = get(read(bytes));
      EXPECT_EQ(refused.status, 429);
      EXPECT_THAT(refused.body, HasSubstr(std::to_string(kBudget)));
    }
    release();
  }
  EXPECT_THAT(statuses, ::testing::Each(200));
  EXPECT_EQ(get(read(kBudget)).status, 200) << "what was read counts no more";
}

TEST_F(IntakeTest, ABodyAboveTheBudgetIsReadWhenItWaitsAlone) {
  release();
  EXPECT_EQ(get(read(2 * Intake::kMaxWaitingBytes)).status, 200);
}

}  // namespace
}  // namespace levada::serve
