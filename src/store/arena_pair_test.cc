// An arena on a device (the CPU twin) between two real processes: captures that one publishes, the other maps, verifies
// and frees by the control channel, and what either's death leaves behind.
#include <gtest/gtest.h>

#include "store/batch_writer.h"
#include "store/child_test.h"
#include "store/control_server.h"
#include "store/endpoint.h"
#include "store/faulty_device_test.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

std::string key_of(int number) { return "s/run:" + std::to_string(number) + "/g1/hidden_states"; }
std::size_t bytes_of_sample(int number) { return 104'000 + static_cast<std::size_t>(number) * 8; }

// An arena's server with its control channel, on which a run's objects outlive its consumers by 50 ms.
struct Serving {
  explicit Serving(const std::string& url, std::uint64_t bytes, device::Device* on = nullptr)
      : arena(make_arena(clock, bytes, 1024, on != nullptr ? on : own_device.get())) {
    ServerOptions options;
    options.shm_url = url;
    options.token = kToken;
    server = *StoreServer::start(*arena, options);
    control = *ControlServer::start(
        *arena, {.url = "tcp://127.0.0.1:0",
                 .terms = {.token = kToken},
                 .orphan_us = 50'000,
                 .keys_of_run = [](std::string_view run) { return "s/" + std::string(run) + ":"; }});
  }
  bool eventually_empty() {
    for (int turn = 0; turn < 10'000 && arena->stats().used_bytes != 0; ++turn) ::usleep(1000);
    return arena->stats().used_bytes == 0;
  }
  SystemClock clock;
  std::unique_ptr<device::Device> own_device = device::make_cpu_device();
  std::unique_ptr<Arena> arena;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<ControlServer> control;
};

// A consumer's two ways to the arena.
struct Consuming {
  Consuming(const std::string& url, const std::string& control_address)
      : device(device::make_cpu_device()),
        store(*open_store(url, kToken, {.device = device.get()}, clock)),
        control(*connect_to(*parse_endpoint("tcp://" + control_address), 5'000'000)) {}
  bool say(std::string_view line) {
    return ::send(control.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<long>(line.size());
  }
  std::string hear() {
    std::string line;
    for (char letter; ::recv(control.get(), &letter, 1, 0) == 1 && letter != '\n';) line += letter;
    return line;
  }
  SystemClock clock;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<ObjectStore> store;
  Fd control;
};

constexpr std::string_view kHello = "{\"hello\":{\"token\":\"correct horse\",\"run\":\"run\"}}\n";

// Reads, verifies and frees 64 samples in order, as they become readable.
std::string take_all(Consuming& consuming) {
  if (!consuming.say(kHello)) return "no hello";
  for (int i = 0; i < 64; ++i) {
    std::vector<std::byte> to(bytes_of_sample(i));
    Status status = not_found("not yet");
    for (int turn = 0; turn < 10'000 && status.code() == StatusCode::kNotFound; ++turn) {
      status = consuming.store->get_into(key_of(i), to).status();
      if (!status.ok()) ::usleep(500);
    }
    if (!status.ok()) return status.to_string();
    if (to != pattern(to.size(), static_cast<unsigned>(i))) return "other bytes in sample " + std::to_string(i);
    if (!consuming.say("[\"" + key_of(i) + "\"]\n")) return "no control";
    if (const std::string heard = consuming.hear(); heard != "{\"freed\":[\"" + key_of(i) + "\"],\"unknown\":[]}")
      return heard;
  }
  return "good";
}

class ArenaPairTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::string url_ = "nvlink://" + (folder_.path() / "arena.sock").string();
};

TEST_F(ArenaPairTest, T9SixtyFourSamplesThroughALargeAndASmallArenaAreVerifiedAndFreedByTheOtherProcess) {
  for (const std::uint64_t capacity : {16u << 20, 1u << 20}) {
    Child child([&](const std::string& control, int done) {
      Consuming consuming(url_, control);
      const std::string said = take_all(consuming);
      [[maybe_unused]] const long written = ::write(done, said.c_str(), said.size() + 1);
    });
    Serving serving(url_, capacity);
    const auto writer = *BatchWriter::create(*serving.arena);
    child.begin(serving.control->address());
    for (int i = 0; i < 64; ++i) {
      const auto sample = pattern(bytes_of_sample(i), static_cast<unsigned>(i));
      const BatchWriter::Item item{key_of(i), sample};
      ASSERT_TRUE(writer->publish(std::span(&item, 1), nullptr, serving.clock.now_us() + 20'000'000).ok()) << i;
    }
    EXPECT_EQ(child.wait(), "good");
    const ArenaStats stats = serving.arena->stats();
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.largest_free_bytes, stats.capacity_bytes);
    EXPECT_EQ(stats.waits > 0, capacity < 64u * 104'000) << "the small one waited and reused its space";
    EXPECT_EQ(serving.control->stats().freed.load(), 64u);
    serving.arena->check_invariants();
  }
}

TEST_F(ArenaPairTest, F14AConsumerKilledMidReadHoldsNothingAndItsRunsObjectsGoAfterTheGrace) {
  Child child([&](const std::string& control, int done) {
    Consuming consuming(url_, control);
    consuming.say(kHello);
    consuming.say("[\"s/run:freed/g1/x\"]\n");
    consuming.hear();
    const auto view = consuming.store->view("s/run:read/g1/x");
    [[maybe_unused]] const long written = ::write(done, view.ok() ? "reading" : "no view", 8);
    ::pause();
  });
  Serving serving(url_, 1 << 20);
  for (const char* key : {"s/run:freed/g1/x", "s/run:read/g1/x", "s/run:unread/g1/x"})
    ASSERT_TRUE(serving.arena->put_from(key, pattern(1000)).ok());
  child.begin(serving.control->address());
  ASSERT_EQ(child.wait(), "reading");
  EXPECT_FALSE(serving.arena->find("s/run:freed/g1/x").has_value());
  EXPECT_EQ(serving.arena->remove("s/run:read/g1/x"), RemoveOutcome::kStillRead);
  child.kill();
  EXPECT_TRUE(serving.eventually_empty());
  EXPECT_EQ(serving.control->stats().orphans.load(), 1u);
  serving.arena->check_invariants();
}

TEST_F(ArenaPairTest, F2AWriterKilledMidCopyNamesNothingAndWhatItNamedBeforeStaysWhole) {
  Child child([&](const std::string&, int done) {
    FaultyDevice device;
    Serving serving(url_, 1 << 20, &device);
    const auto writer = *BatchWriter::create(*serving.arena);
    const auto whole = pattern(50'000, 1), next = pattern(60'000, 2), late = pattern(70'000, 3);
    const BatchWriter::Item first{"whole", whole};
    if (!writer->publish(std::span(&first, 1), nullptr, 0).ok()) ::_exit(1);
    device.stall_after(1, done);
    const BatchWriter::Item batch[] = {{"next", next}, {"late", late}};
    [[maybe_unused]] const auto never = writer->publish(batch, nullptr, 0);
  });
  child.begin("go");
  ASSERT_EQ(child.wait(), "s") << "in the middle of the second copy";
  SystemClock clock;
  const auto device = device::make_cpu_device();
  const auto store = *open_store(url_, kToken, {.timeout_us = 5'000'000, .device = device.get()}, clock);
  const std::uint64_t life = store->incarnation();
  const auto view = store->view("whole");
  ASSERT_TRUE(view.ok());
  std::vector<std::byte> to(60'000), late(70'000);
  EXPECT_EQ(store->get_into("next", to).status().code(), StatusCode::kNotFound) << "copied, but its batch is not";
  EXPECT_EQ(store->get_into("late", late).status().code(), StatusCode::kNotFound);
  child.kill();

  ::usleep(2'000);  // a killed server is noticed within a millisecond
  EXPECT_EQ(store->get_into("next", to).status().code(), StatusCode::kUnavailable);
  const auto expected = pattern(50'000, 1);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), view->bytes().begin())) << "mapped memory stays";
  Serving again(url_, 1 << 20);
  EXPECT_EQ(store->get_into("late", late, life).status().field(), "incarnation");
  EXPECT_EQ(again.arena->stats().used_bytes, 0u);
}

}  // namespace
}  // namespace levada::store
