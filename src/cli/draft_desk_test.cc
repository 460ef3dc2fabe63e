// The desk's side of a swap, with a worker and a scheduler made of lists: what is offered, used and withdrawn, in which order.
#include "cli/draft_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace levada::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeDraft final : public model::Draft {
 public:
  FakeDraft() {
    config_.layers = 2;
    config_.block_size = 8;
  }
  const model::DraftConfig& config() const override { return config_; }
  std::int64_t bytes() const override { return 4096; }

 private:
  model::DraftConfig config_;
};

// The scheduler's side: use() is answered when the test says so.
class Desk : public ::testing::Test {
 protected:
  Desk() { desk_ = std::make_unique<DraftDesk>(ground(), model::DraftRoom{2, 64, 128, 1000, 8}); }

  DraftDesk::Ground ground() {
    DraftDesk::Ground ground;
    ground.load = [this](const std::filesystem::path& path) -> Result<std::shared_ptr<const model::Draft>> {
      if (path == "/missing") return not_found("there is no /missing/config.json");
      if (path == "/damaged") return data_loss("model.safetensors: ends early");
      if (path == "/large") return resource_exhausted("4 layers, there is room for 2");
      if (path == "/foreign") return invalid_argument("is 64, the target's is 72", "hidden_size");
      say("read " + path.string());
      return std::shared_ptr<const model::Draft>(std::make_shared<const FakeDraft>());
    };
    ground.offer = [this](core::DraftVersion version, auto) { say("offer " + std::to_string(core::value(version))); };
    ground.withdraw = [this](core::DraftVersion version) { say("withdraw " + std::to_string(core::value(version))); };
    ground.use = [this](const core::DraftProfile& profile, std::function<void()> done) {
      say("use " + std::to_string(core::value(profile.version)));
      if (answers_) return done();
      std::lock_guard lock(mutex_);
      asked_ = std::move(done);
    };
    ground.inspect = [this](const std::function<void(const sched::Snapshot&)>& job) {
      sched::Snapshot snapshot;
      snapshot.speculation = totals_;
      job(snapshot);
    };
    ground.unix_s = [] { return std::int64_t{1700000000}; };
    return ground;
  }

  void say(std::string what) {
    std::lock_guard lock(mutex_);
    heard_.push_back(std::move(what));
  }
  std::vector<std::string> heard() {
    std::lock_guard lock(mutex_);
    return std::exchange(heard_, {});
  }

  template <class Ask>
  static Result<serve::DraftsReport> wait(Ask ask) {
    std::promise<Result<serve::DraftsReport>> answer;
    ask([&](Result<serve::DraftsReport> report) { answer.set_value(std::move(report)); });
    return answer.get_future().get();
  }
  Result<serve::DraftsReport> load(const std::string& path) {
    return wait([&](auto done) { desk_->load({path, std::nullopt}, std::move(done)); });
  }
  Result<serve::DraftsReport> unload() {
    return wait([&](auto done) { desk_->unload(std::move(done)); });
  }
  Result<serve::DraftsReport> roll_back() {
    return wait([&](auto done) { desk_->roll_back(std::move(done)); });
  }
  Result<serve::DraftsReport> list() {
    return wait([&](auto done) { desk_->list(std::move(done)); });
  }
  static std::string served(const Result<serve::DraftsReport>& report) {
    const auto name = [](const std::optional<serve::DraftReport>& draft) { return draft ? draft->profile.name : "-"; };
    return report.ok() ? name(report->serving) + " " + name(report->previous) : report.status().to_string();
  }

  std::mutex mutex_;
  std::vector<std::string> heard_;
  std::function<void()> asked_;
  std::atomic<bool> answers_ = true;
  sched::SpeculationTotals totals_;
  std::unique_ptr<DraftDesk> desk_;
};

// served:    a        b a      c b (a is withdrawn, only now)
TEST_F(Desk, KeepsExactlyOneDraftForTheWayBack) {
  EXPECT_EQ(served(load("/drafts/a")), "a -");
  EXPECT_EQ(served(load("/drafts/b/")), "b a");
  EXPECT_THAT(heard(), ElementsAre("read /drafts/a", "offer 1", "use 1", "read /drafts/b/", "offer 2", "use 2"));
  EXPECT_EQ(served(load("/drafts/c")), "c b");
  EXPECT_THAT(heard(), ElementsAre("read /drafts/c", "offer 3", "use 3", "withdraw 1"));
}

TEST_F(Desk, RollingBackSwapsTheTwoUnderTheirOldVersions) {
  (void)load("/a");
  (void)load("/b");
  (void)heard();
  EXPECT_EQ(served(roll_back()), "a b");
  EXPECT_EQ(served(roll_back()), "b a");
  EXPECT_THAT(heard(), ElementsAre("use 1", "use 2"));
}

TEST_F(Desk, UnloadingKeepsTheDraftForTheWayBack) {
  EXPECT_EQ(unload().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(roll_back().status().code(), StatusCode::kNotFound);
  (void)load("/a");
  (void)heard();
  EXPECT_EQ(served(unload()), "- a");
  EXPECT_EQ(served(roll_back()), "a -");
  EXPECT_THAT(heard(), ElementsAre("use 0", "use 1"));
}

TEST_F(Desk, AFailedOrderChangesNothing) {
  (void)load("/a");
  (void)heard();
  struct Refusal {
    const char* path;
    StatusCode code;
    const char* words;
  };
  for (const Refusal& expected : {Refusal{"/missing", StatusCode::kNotFound, "/missing/config.json"},
                                  Refusal{"/damaged", StatusCode::kInvalidArgument, "ends early"},
                                  Refusal{"/large", StatusCode::kPayloadTooLarge, "room for 2"},
                                  Refusal{"/foreign", StatusCode::kInvalidArgument, "hidden_size: is 64"}}) {
    const auto refused = load(expected.path);
    ASSERT_FALSE(refused.ok()) << expected.path;
    EXPECT_EQ(refused.status().code(), expected.code) << expected.path;
    EXPECT_THAT(refused.status().message(), HasSubstr(expected.words));
    EXPECT_EQ(refused.status().field(), "path");
  }
  EXPECT_THAT(heard(), IsEmpty());
  EXPECT_EQ(served(list()), "a -");
}

//            10 steps       +20 under b     +5 under a again
TEST_F(Desk, CountsAreOfTheTimeADraftServed) {
  (void)load("/a");
  totals_ = {10, 70, 20};
  EXPECT_EQ(list()->serving->counts.steps, 10u);
  (void)load("/b");
  totals_ = {30, 210, 80};
  const auto both = list();
  EXPECT_EQ(both->serving->counts.steps, 20u);
  EXPECT_EQ(both->serving->counts.accepted, 60u);
  EXPECT_EQ(both->previous->counts.accepted, 20u);
  (void)roll_back();
  totals_.steps += 5;
  EXPECT_EQ(list()->serving->counts.steps, 15u);
  EXPECT_EQ(list()->previous->counts.drafts, 140u);
}

TEST_F(Desk, ADraftThatIsBegunWithServesBeforeTheSchedulerRuns) {
  answers_ = false;
  ASSERT_TRUE(desk_->begin("/a").ok());
  EXPECT_THAT(heard(), ElementsAre("read /a", "offer 1", "use 1"));
  EXPECT_EQ(served(list()), "a -");
  EXPECT_EQ(list()->room->layers, 2);
}

TEST_F(Desk, OrdersBeyondThoseThatMayWaitAreRefused) {
  answers_ = false;
  std::vector<std::future<Result<serve::DraftsReport>>> answers;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    const auto answer = std::make_shared<std::promise<Result<serve::DraftsReport>>>();
    answers.push_back(answer->get_future());
    desk_->load({"/a", std::nullopt},
                [answer](Result<serve::DraftsReport> report) { answer->set_value(std::move(report)); });
    if (answers.back().wait_for(std::chrono::seconds(0)) == std::future_status::ready) ++refused;
  }
  EXPECT_GE(refused, 3);  // one is being carried out, or still waits with the eight
  desk_.reset();          // with the first order's takeover unanswered
  for (auto& answer : answers) {
    const Status status = answer.get().status();
    EXPECT_TRUE(status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace levada::cli
