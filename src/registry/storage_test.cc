// One conformance suite over every Storage. A test that needs PostgreSQL fails if none can be started.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "fanout/sim/driver.h"
#include "registry/sql_storage.h"
#include "registry/test_postgres.h"
#include "support/temporary_folder.h"

namespace levada::registry {
namespace {

using fanout::Changes;
using fanout::Driver;
using fanout::EntryState;
using fanout::Rows;

class StorageConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "sqlite") {
      where_ = folder_.path() / "registry.sqlite";
    } else {
      ASSERT_TRUE(test_postgres().running()) << "PostgreSQL could not be started: run scripts/setup.sh";
      where_ = test_postgres().fresh_database();
    }
  }
  Result<std::unique_ptr<Storage>> try_open() {
    return GetParam() == "sqlite" ? open_sqlite_storage(where_, context_) : open_postgres_storage(where_, context_);
  }
  std::unique_ptr<Storage> open() {
    auto storage = try_open();
    EXPECT_TRUE(storage.ok()) << storage.status().to_string();
    return storage.ok() ? std::move(*storage) : nullptr;
  }

  const test::TemporaryFolder folder_;
  std::string where_;
  RefContext context_{"run", "dflash", "target", "", "tokenizer", "hidden_states"};
};

// Both as text, ordered as load() orders: equal texts are equal databases.
std::string text_of(const Rows& rows) {
  std::string text;
  if (rows.run) text += rows.run->run_id + "/" + std::to_string(rows.run->registry_epoch) + "\n";
  for (const auto& row : rows.sources) text += row.source_sample_id + " " + std::to_string(row.ntokens) + "\n";
  for (const auto& row : rows.consumers) {
    text += row.consumer_id + " " + std::string(to_string(row.state)) + " " + std::to_string(row.cursor) + " " +
            row.session_id + " " + std::to_string(row.last_op_hash) + " " + row.last_op_reply + "\n";
  }
  for (const auto& row : rows.entries) {
    text += std::to_string(row.source_index) + " " + std::string(to_string(row.state)) + " g" +
            std::to_string(row.generation) + " " + row.nonce + " " + (row.ref ? ref_json(*row.ref, {}) : "-") + " " +
            std::to_string(row.servers.size()) + "\n";
  }
  for (const auto& row : rows.leases) text += row.token + " " + row.consumer_id + "\n";
  for (const auto& row : rows.garbage) text += std::to_string(row.source_index) + " " + row.last_error + "\n";
  for (const auto& row : rows.checkpoints)
    text += row.consumer_id + " " + std::to_string(row.step) + " " + row.uri + "\n";
  for (const auto& row : rows.counters) text += row.name + " " + std::to_string(row.value) + "\n";
  return text;
}

TEST_P(StorageConformance, ANewDatabaseHoldsNoRun) {
  auto storage = open();
  const auto rows = storage->load();
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  EXPECT_FALSE(rows->run.has_value());
}

TEST_P(StorageConformance, EveryRowOfARunComesBackAfterReopening) {
  auto storage = open();
  Driver driver(fanout::small_config({fanout::spec(1, 3, 2, 3), fanout::spec(2, 3, 2, 3)}, 6, 6));
  ASSERT_TRUE(storage->commit(driver.machine().take_changes()).ok());
  driver.join_all();
  driver.capture_all();
  ASSERT_TRUE(driver.acquire(0, 0, 2).ok());
  ASSERT_TRUE(driver.ack(0).ok());
  ASSERT_TRUE(driver.done(1, driver.call(fanout::CheckpointRequest{driver.next(1), 1, 2, "file:///ü'\";--"})).ok());
  const auto order = driver.claim();
  ASSERT_TRUE(storage->commit(driver.machine().take_changes()).ok());
  if (!order.empty()) {
    const auto& o = order[0];
    ASSERT_TRUE(driver
                    .call(fanout::FailCaptureRequest{o.source_index, o.generation, o.nonce, "no answer", true,
                                                     fanout::Written::kNo})
                    .ok());
  }
  ASSERT_TRUE(driver.ack(0).ok());
  ASSERT_TRUE(storage->commit(driver.machine().take_changes()).ok());

  const auto before = storage->load();
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  storage.reset();
  storage = open();
  const auto after = storage->load();
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(text_of(*before), text_of(*after));
  ASSERT_TRUE(after->run.has_value());
  EXPECT_EQ(after->sources.size(), 6u);
  EXPECT_EQ(after->consumers.size(), 2u);
  EXPECT_EQ(after->leases.size(), driver.state().consumers[0].leases.size());
  for (const auto& row : after->entries) {
    const auto& memory = driver.state().entry(row.source_index).row;
    EXPECT_EQ(row.state, memory.state);
    EXPECT_EQ(row.generation, memory.generation);
    EXPECT_EQ(row.servers, memory.servers);
    ASSERT_EQ(row.ref != nullptr, memory.ref != nullptr);
    if (row.ref) {
      EXPECT_EQ(*row.ref, *memory.ref);
    }
  }
  // And the machine stands up again from these rows.
  auto reopened = fanout::Machine::open(std::make_shared<fanout::RunConfig>(driver.config()), *after, 5);
  ASSERT_TRUE(reopened.ok()) << reopened.status().to_string();
  EXPECT_EQ(fanout::audit(reopened->state(), 5), std::vector<std::string>());
}

TEST_P(StorageConformance, ErasedRowsAreGoneAndLaterChangesWin) {
  auto storage = open();
  Changes changes;
  changes.upserts.leases = {{"1-1", "a", 0, 1, 1, 1}, {"1-2", "a", 1, 1, 1, 1}};
  fanout::GarbageRow garbage;
  garbage.source_index = 3;
  garbage.generation = 2;
  garbage.servers = {"http://one", "http://two"};
  changes.upserts.garbage = {garbage};
  changes.upserts.counters = {{"capture_count", 1}};
  ASSERT_TRUE(storage->commit(changes).ok());
  Changes later;
  later.erased_leases = {"1-1", "never there"};
  later.erased_garbage = {{3, 1}};
  later.upserts.counters = {{"capture_count", 2}};
  ASSERT_TRUE(storage->commit(later).ok());
  const auto rows = storage->load();
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->leases.size(), 1u);
  EXPECT_EQ(rows->leases[0].token, "1-2");
  ASSERT_EQ(rows->garbage.size(), 1u);
  EXPECT_EQ(rows->garbage[0], garbage);
  ASSERT_EQ(rows->counters.size(), 1u);
  EXPECT_EQ(rows->counters[0].value, 2);
}

TEST_P(StorageConformance, AGroupLargerThanAnySocketBufferIsOneTransaction) {
  auto storage = open();
  Changes changes;
  for (int i = 0; i < 5000; ++i) {
    changes.upserts.leases.push_back({"1-" + std::to_string(i), std::string(200, 'c'), i, 1, 1, 1});
  }
  ASSERT_TRUE(storage->commit(changes).ok());
  const auto rows = storage->load();
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->leases.size(), 5000u);
}

TEST_P(StorageConformance, ASecondRegistryOnTheSameDatabaseIsRefused) {
  auto storage = open();
  auto second = try_open();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("in use by another registry"), std::string::npos);
  storage.reset();
  EXPECT_TRUE(try_open().ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, StorageConformance, testing::Values("sqlite", "postgres"),
                         [](const auto& info) { return info.param; });

TEST(SqliteStorage, ADamagedFileIsDataLossAndNamesIt) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("registry.sqlite", std::string(8192, 'x'));
  const auto storage = open_sqlite_storage(path, {});
  ASSERT_FALSE(storage.ok());
  EXPECT_EQ(storage.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(storage.status().message().find(path), std::string::npos);
}

// A disk that is full, as far as this process can tell: files may not grow.
class FullDisk {
 public:
  FullDisk() {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit full = old_;
    full.rlim_cur = 100'000;
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

// Fault 44.
TEST(SqliteStorage, AFullDiskFailsTheCommitAndLeavesNothingOfIt) {
  const test::TemporaryFolder folder;
  auto storage = open_sqlite_storage(folder.path() / "registry.sqlite", {});
  ASSERT_TRUE(storage.ok());
  Changes good;
  good.upserts.counters = {{"a", 1}};
  ASSERT_TRUE((*storage)->commit(good).ok());
  {
    const FullDisk full;
    Changes bad;
    bad.upserts.leases = {{"1-1", "a", 0, 1, 1, 1}};
    bad.upserts.checkpoints = {{"a", 1, 1, std::string(1'000'000, 'u')}};
    EXPECT_FALSE((*storage)->commit(bad).ok());
  }
  const auto rows = (*storage)->load();
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  EXPECT_TRUE(rows->leases.empty());
  EXPECT_EQ(rows->counters.size(), 1u);
  good.upserts.counters = {{"a", 2}};
  EXPECT_TRUE((*storage)->commit(good).ok());
}

TEST(PostgresStorage, AServerThatDiesFailsTheCommitAndTheNextOneConnectsAnew) {
  ASSERT_TRUE(test_postgres().running()) << "PostgreSQL could not be started: run scripts/setup.sh";
  auto storage = open_postgres_storage(test_postgres().fresh_database(), {});
  ASSERT_TRUE(storage.ok()) << storage.status().to_string();
  Changes first;
  first.upserts.counters = {{"a", 1}};
  ASSERT_TRUE((*storage)->commit(first).ok());
  ASSERT_TRUE(test_postgres().crash_and_restart());
  Changes second;
  second.upserts.counters = {{"a", 2}};
  EXPECT_FALSE((*storage)->commit(second).ok());
  ASSERT_TRUE((*storage)->commit(second).ok());
  const auto rows = (*storage)->load();
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  ASSERT_EQ(rows->counters.size(), 1u);
  EXPECT_EQ(rows->counters[0].value, 2);
}

}  // namespace
}  // namespace levada::registry
