#include "consumer/buffer_pool.h"

#include <gtest/gtest.h>

namespace levada::consumer {
namespace {

class BufferPoolTest : public testing::Test {
 protected:
  const std::unique_ptr<device::Device> device_ = device::open_device(device::DeviceKind::kCpu).value();
};

TEST_F(BufferPoolTest, ABufferThatEndedIsUsedAgain) {
  BufferPool pool(*device_, BufferPool::Place::kDevice, 0);
  const std::byte* first = nullptr;
  {
    const BufferPool::Buffer buffer = *pool.take(1000);
    first = buffer.bytes().data();
    EXPECT_EQ(buffer.bytes().size(), 1000u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(pool.take(600)->bytes().data(), first);  // large enough, and not twice as large
  EXPECT_NE(pool.take(10)->bytes().data(), first);
}

TEST_F(BufferPoolTest, F36AQuarantinedBufferIsNeverUsedAgain) {
  BufferPool pool(*device_, BufferPool::Place::kDevice, 4000);
  BufferPool::Buffer failed = *pool.take(1000);
  const std::byte* memory = failed.bytes().data();
  EXPECT_TRUE(pool.quarantine(std::move(failed)).ok());
  for (int i = 0; i < 4; ++i) EXPECT_NE(pool.take(1000)->bytes().data(), memory);
  EXPECT_EQ(pool.quarantined_bytes(), 1000u);
}

TEST_F(BufferPoolTest, TooMuchQuarantineIsAFailureThatNamesTheLimit) {
  BufferPool pool(*device_, BufferPool::Place::kDevice, 1500);
  EXPECT_TRUE(pool.quarantine(*pool.take(1000)).ok());
  const Status status = pool.quarantine(*pool.take(1000));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("max_quarantined_bytes = 1500"), std::string::npos) << status.message();
}

TEST_F(BufferPoolTest, WhatTheDeviceDoesNotHaveIsRefused) {
  BufferPool pool(*device_, BufferPool::Place::kDevice, 0);
  EXPECT_EQ(pool.take(std::size_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace levada::consumer
