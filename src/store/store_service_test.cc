#include "store/store_service.h"

#include <gtest/gtest.h>

#include "store/test_store.h"

namespace levada::store {
namespace {

TEST(StoreService, ServesWhatItsOptionsSayAndCounts) {
  TemporaryFolder folder;
  SystemClock clock;
  Metrics metrics;
  Options options;
  OptionTable table;
  describe(table, options);
  ASSERT_TRUE(table.set("store", "arena_bytes", "1048576").ok());
  ASSERT_TRUE(table.set("store", "arena_objects", "16").ok());
  ASSERT_TRUE(table.set("store", "store_tcp_url", "tcp://127.0.0.1:0").ok());
  ASSERT_TRUE(table.set("store", "store_shm_url", "shm://" + (folder.path() / "s").string()).ok());
  auto service = StoreService::start(options, kToken, clock, metrics);
  ASSERT_TRUE(service.ok()) << service.status().to_string();
  for (const std::string& url : {(*service)->tcp_url(), (*service)->shm_url()}) {
    auto client = open_store(url, kToken, {}, clock);
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    ASSERT_TRUE((*client)->put_from(url, pattern(1000)).ok());
  }
  (*service)->update_metrics();
  const std::string text = metrics.render();
  EXPECT_NE(text.find("levada:store_objects 2"), std::string::npos) << text;
  EXPECT_NE(text.find("levada:store_used_bytes 2048"), std::string::npos);
  EXPECT_NE(text.find("levada:store_received_bytes 2000"), std::string::npos);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  service->reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the socket's file goes with the server";
}

TEST(StoreService, WithoutAUrlItIsThisProcesssOwn) {
  SystemClock clock;
  Metrics metrics;
  auto service = StoreService::start({.arena_bytes = 4096}, "", clock, metrics);
  ASSERT_TRUE(service.ok());
  EXPECT_EQ((*service)->tcp_url(), "");
  EXPECT_TRUE((*service)->arena().put_from("k", pattern(10)).ok());
  EXPECT_EQ(StoreService::start({.arena_bytes = 4096, .store_tcp_url = "tcp://127.0.0.1:0"}, "", clock, metrics)
                .status()
                .field(),
            "token");
}

}  // namespace
}  // namespace levada::store
