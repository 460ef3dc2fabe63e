#include "device/layer_ready.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "device/cpu_device.h"
#include "device/fake_async_device_test.h"

namespace levada::device {
namespace {

using std::chrono_literals::operator""ms;

// source ──load stream (held)──> page ──compute stream──> seen
struct OneLoad {
  int source = 7, page = 0, seen = 0;
  FakeStream load, compute;
  LayerReady gates{2};
};

TEST(LayerReady, TheReaderSeesTheBytesHoweverLateTheLoadIs) {
  OneLoad t;
  t.load.hold();
  ASSERT_TRUE(t.load.copy(&t.page, &t.source, sizeof(int)).ok());
  auto event = std::make_shared<FakeEvent>();
  ASSERT_TRUE(t.load.record(*event).ok());
  t.gates.mark(0, event);

  ASSERT_TRUE(t.gates.wait(0, t.compute).ok());  // doesn't block the caller: it orders the stream
  ASSERT_TRUE(t.compute.copy(&t.seen, &t.page, sizeof(int)).ok());
  EXPECT_FALSE(event->ready());
  t.load.release();
  ASSERT_TRUE(t.compute.synchronize().ok());
  EXPECT_EQ(t.seen, 7);
}

TEST(LayerReady, AGateThatWasNeverMarkedWaitsAndDoesNotPass) {
  OneLoad t;
  auto waiter = std::async(std::launch::async, [&] { return t.gates.wait(1, t.compute); });
  EXPECT_EQ(waiter.wait_for(20ms), std::future_status::timeout);
  t.gates.mark(0, nullptr);  // another layer's gate doesn't open this one
  EXPECT_EQ(waiter.wait_for(20ms), std::future_status::timeout);
  t.gates.mark(1, nullptr);
  EXPECT_TRUE(waiter.get().ok());
}

TEST(LayerReady, TheEventOutlivesItsProducer) {
  OneLoad t;
  t.load.hold();
  ASSERT_TRUE(t.load.copy(&t.page, &t.source, sizeof(int)).ok());
  {
    auto event = std::make_shared<FakeEvent>();
    ASSERT_TRUE(t.load.record(*event).ok());
    t.gates.mark(0, std::move(event));
  }
  ASSERT_TRUE(t.gates.wait(0, t.compute).ok());
  ASSERT_TRUE(t.compute.copy(&t.seen, &t.page, sizeof(int)).ok());
  t.load.release();
  ASSERT_TRUE(t.compute.synchronize().ok());
  EXPECT_EQ(t.seen, 7);
}

TEST(LayerReady, AFailedProducerFailsTheWaiterOfEveryLayer) {
  OneLoad t;
  auto waiter = std::async(std::launch::async, [&] { return t.gates.wait(1, t.compute); });
  t.gates.mark(0, nullptr);
  t.gates.fail(data_loss("page 12 has a wrong checksum"));
  EXPECT_EQ(waiter.get().code(), StatusCode::kDataLoss);
  EXPECT_EQ(t.gates.wait(0, t.compute).message(), "page 12 has a wrong checksum");
}

TEST(LayerReady, TheFirstFailureIsKept) {
  OneLoad t;
  t.gates.fail(data_loss("first"));
  t.gates.fail(internal_error("second"));
  EXPECT_EQ(t.gates.wait(0, t.compute).message(), "first");
}

TEST(LayerReadyDeath, AnEventIsRecordedBeforeItsGateIsMarkedAndMarkedOnce) {
  auto device = make_cpu_device();
  LayerReady gates(1);
  std::shared_ptr<Event> event = std::move(device->make_event()).value();
  EXPECT_DEATH(gates.mark(0, event), "recorded before");
  gates.mark(0, nullptr);
  EXPECT_DEATH(gates.mark(0, nullptr), "marked once");
  EXPECT_DEATH(gates.mark(1, nullptr), "gate of this batch");
}

}  // namespace
}  // namespace levada::device
