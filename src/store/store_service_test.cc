#include "store/store_service.h"

#include <gtest/gtest.h>

#include "store/start_check.h"
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

class DeviceServiceTest : public ::testing::Test {
 protected:
  DeviceServiceTest() {
    describe(table_, options_);
    options_.arena_device = "cpu";
    options_.arena_bytes = 1 << 20;
  }
  auto start() { return StoreService::start(options_, kToken, clock_, metrics_); }

  SystemClock clock_;
  Metrics metrics_;
  Options options_;
  OptionTable table_;
};

TEST_F(DeviceServiceTest, T5N3ItsSizeMustBeGivenAndBeAWholeNumberAboveZero) {
  for (const char* size : {"0", "-1", "1e9", "big", "1048576.5", "12 "})
    EXPECT_EQ(table_.set("store", "arena_bytes", size).code(), StatusCode::kInvalidArgument) << size;
  options_.arena_bytes.reset();
  EXPECT_EQ(start().status().field(), "arena_bytes");
  options_.arena_bytes = 0;
  EXPECT_EQ(start().status().field(), "arena_bytes");
}

TEST_F(DeviceServiceTest, N3ItSaysByWhatItsMemoryIsSharedAndIsEmptyAfterTheCheck) {
  const auto service = start();
  ASSERT_TRUE(service.ok()) << service.status().to_string();
  EXPECT_EQ((*service)->share_kind(), "memory file");
  EXPECT_NE(metrics_.render().find("levada:store_share_kind{kind=\"memory file\"} 1"), std::string::npos);
  EXPECT_EQ((*service)->arena().stats().used_bytes, 0u);
}

TEST_F(DeviceServiceTest, N8ItsControlChannelIsOnLoopbackUnlessToldOtherwise) {
  EXPECT_TRUE((*start())->control().starts_with("127.0.0.1:"));
  options_.store_control_url = "off";
  EXPECT_EQ((*start())->control(), "");
  options_.store_control_url = "tcp://0.0.0.0:0";
  EXPECT_EQ(start().status().field(), "store_control_url");
  options_.store_control_url = "auto";
  options_.arena_device = "host";
  EXPECT_EQ((*start())->control(), "") << "T6: no arena on a device, no control channel";
}

TEST_F(DeviceServiceTest, N21EveryFigureOfTheSpecHasAName) {
  const auto service = start();
  (*service)->update_metrics();
  const std::string text = metrics_.render();
  for (const char* name : {"objects", "capacity_bytes", "free_bytes", "largest_free_bytes", "peak_used_bytes", "allocs",
                           "frees", "free_unknown", "clashes", "waits", "wait_ms", "wait_timeouts", "publish_ms",
                           "publish_bytes", "control_connections", "control_bad_line", "copy_errors"}) {
    EXPECT_NE(text.find(std::string("levada:store_") + name + " "), std::string::npos) << name;
  }
}

// A device that exports other memory than it writes: what a driver may do where it replaces memory in silence.
class WrongMemoryDevice final : public device::Device {
 public:
  device::DeviceKind kind() const override { return device::DeviceKind::kCpu; }
  int index() const override { return 0; }
  std::string name() const override { return "wrong"; }
  std::int64_t total_bytes() const override { return 1 << 30; }
  std::int64_t free_bytes() const override { return 1 << 30; }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate_pinned(std::size_t bytes) override {
    return cpu_->allocate(bytes);
  }
  Result<std::unique_ptr<device::SharedBuffer>> allocate_shared(std::size_t bytes, device::FabricUse use) override {
    return cpu_->allocate_shared(bytes, use);
  }
  Result<std::unique_ptr<device::DeviceBuffer>> import_shared(device::ShareKind, Fd, std::size_t bytes) override {
    return cpu_->allocate(bytes);
  }
  Result<std::unique_ptr<device::Stream>> make_stream() override { return cpu_->make_stream(); }
  Result<std::unique_ptr<device::Event>> make_event() override { return cpu_->make_event(); }

 private:
  std::unique_ptr<device::Device> cpu_ = device::make_cpu_device();
};

TEST(StartCheck, N3MemoryThatOthersWouldReadOtherwiseIsRefused) {
  SystemClock clock;
  WrongMemoryDevice wrong;
  const auto device = device::make_cpu_device();
  const auto arena = make_arena(clock, 1 << 16, 16, &wrong), good = make_arena(clock, 1 << 16, 16, device.get());
  EXPECT_EQ(check_importable(*arena).code(), StatusCode::kInternal);
  EXPECT_TRUE(check_importable(*good).ok());
  EXPECT_EQ(good->stats().used_bytes, 0u);
}

}  // namespace
}  // namespace levada::store
