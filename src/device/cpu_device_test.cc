#include "device/cpu_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/system_memory.h"

namespace levada::device {
namespace {

TEST(CpuDevice, MemoryIsZeroedAndPageAligned) {
  auto device = make_cpu_device();
  auto buffer = std::move(device->allocate(100'000)).value();
  ASSERT_EQ(buffer->size_bytes(), 100'000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 4096, 0u);
  const auto* bytes = static_cast<const unsigned char*>(buffer->data());
  for (std::size_t i = 0; i < buffer->size_bytes(); ++i) ASSERT_EQ(bytes[i], 0);
}

TEST(CpuDevice, AnEmptyBufferIsABuffer) {
  auto buffer = std::move(make_cpu_device()->allocate(0)).value();
  EXPECT_EQ(buffer->size_bytes(), 0u);
}

TEST(CpuDevice, MoreThanIsAvailableIsRefusedWithWantedAndFreeBytes) {
  auto device = make_cpu_device();
  const std::size_t wanted = static_cast<std::size_t>(device->total_bytes()) + 1;
  const Status status = device->allocate(wanted).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(std::to_string(wanted) + " bytes are wanted"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("bytes are available"), std::string::npos);
}

TEST(CpuDevice, KnowsItsMemory) {
  auto device = make_cpu_device();
  EXPECT_GT(device->free_bytes(), 0);
  EXPECT_GE(device->total_bytes(), device->free_bytes());
}

TEST(CpuDevice, CopiesAndFillsHaveHappenedWhenTheyReturn) {
  auto device = make_cpu_device();
  auto stream = std::move(device->make_stream()).value();
  auto buffer = std::move(device->allocate(8)).value();
  EXPECT_TRUE(stream->fill(buffer->data(), 0xAB, 8).ok());
  EXPECT_TRUE(stream->copy(buffer->data(), "levada", 6).ok());
  EXPECT_EQ(std::memcmp(buffer->data(), "levada\xAB\xAB", 8), 0);
}

TEST(CpuDevice, ARecordedEventIsReady) {
  auto device = make_cpu_device();
  auto stream = std::move(device->make_stream()).value();
  auto event = std::move(device->make_event()).value();
  EXPECT_FALSE(event->recorded());
  ASSERT_TRUE(stream->record(*event).ok());
  EXPECT_TRUE(event->recorded());
  EXPECT_TRUE(event->ready());
  EXPECT_TRUE(event->wait().ok());
  EXPECT_TRUE(stream->wait(*event).ok());
}

TEST(CpuDeviceDeath, WaitingForAnEventThatWasNeverRecordedAborts) {
  auto device = make_cpu_device();
  auto stream = std::move(device->make_stream()).value();
  auto event = std::move(device->make_event()).value();
  EXPECT_DEATH((void)event->wait(), "recorded");
  EXPECT_DEATH((void)event->ready(), "recorded");
  EXPECT_DEATH((void)stream->wait(*event), "recorded");
}

TEST(OpenDevice, ThereIsOneCpu) {
  ASSERT_TRUE(open_device(DeviceKind::kCpu).ok());
  EXPECT_EQ(open_device(DeviceKind::kCpu, 1).status().code(), StatusCode::kUnavailable);
}

TEST(OpenDevice, CudaWithoutAGpuIsUnavailableAndSaysWhatToDo) {
  auto device = open_device(DeviceKind::kCuda);
  if (device.ok()) {  // this machine has one: an index that no machine has is answered the same way
    device = open_device(DeviceKind::kCuda, 9999);
  }
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(device.status().message().find("--device cpu") != std::string::npos ||
              device.status().message().find("CUDA devices") != std::string::npos)
      << device.status().message();
}

}  // namespace
}  // namespace levada::device
