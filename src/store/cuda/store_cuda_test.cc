// The GPU's part of the store against its CPU twins; needs a GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "device/device.h"
#include "store/batch_copier.h"
#include "store/batch_writer.h"
#include "store/piece_hash.h"
#include "store/test_store.h"

namespace levada::store {
namespace {

class StoreCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = device::open_device(device::DeviceKind::kCuda);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    device_ = *std::move(opened);
    stream_ = *device_->make_stream();
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    ASSERT_TRUE(stream_->copy(to, from, bytes).ok());
    ASSERT_TRUE(stream_->synchronize().ok());
  }
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
};

TEST_F(StoreCudaTest, EveryLengthIsCopiedAndMeasuredAsOnTheCpuAndNothingBeside) {
  constexpr std::size_t kGuard = 4096;
  auto copier = *BatchCopier::create(*device_);
  std::vector<std::size_t> sizes = {0, 1, 8, 240, 241, 255, 256, 257, 511, 1023, 1024, 1025, 1088, 1089};
  for (std::size_t size : {16383, 16384, 16385, 32767, 32768, 32769, 65536, 100'001, 1 << 20, (1 << 20) + 13})
    sizes.push_back(size);
  for (const std::size_t shift : {0, 8}) {  // 8: no access of 16 bytes is possible
    for (std::size_t size : sizes) {
      const std::size_t room = (size + 7) / 8 * 8 + 2 * kGuard;
      const auto bytes = pattern(size, static_cast<unsigned>(size));
      auto from = *device_->allocate(room);
      auto to = *device_->allocate(room);
      auto* const source = static_cast<std::byte*>(from->data()) + shift;
      copy(source, bytes.data(), size);
      ASSERT_TRUE(stream_->fill(to->data(), 0xA5, room).ok());
      ASSERT_TRUE(stream_->synchronize().ok());
      auto* const inside = static_cast<std::byte*>(to->data()) + kGuard + shift;
      const Transfer transfer{source, inside, size};
      const auto measured = copier->copy_measured(std::span(&transfer, 1));
      ASSERT_TRUE(measured.ok()) << measured.status().to_string();
      EXPECT_EQ(measured->front(), piece_hash(bytes)) << size << " at " << shift;
      std::vector<std::byte> all(room), expected(room, std::byte{0xA5});
      copy(all.data(), to->data(), room);
      std::copy(bytes.begin(), bytes.end(), expected.begin() + kGuard + shift);
      EXPECT_EQ(all, expected) << size << " at " << shift;
    }
  }
}

TEST_F(StoreCudaTest, WhatAReaderWantsOnTheHostIsWrittenToPinnedMemoryInTheSameBatch) {
  auto copier = *BatchCopier::create(*device_);
  for (const std::size_t size : {24, 256, 4104, 70'000}) {
    const auto bytes = pattern(size, static_cast<unsigned>(size));
    auto from = *device_->allocate(size), there = *device_->allocate(size), here = *device_->allocate_pinned(size);
    copy(from->data(), bytes.data(), size);
    const auto* const source = static_cast<const std::byte*>(from->data());
    const Transfer transfers[] = {{source, static_cast<std::byte*>(there->data()), size},
                                  {source, static_cast<std::byte*>(here->data()), size}};
    const auto measured = copier->copy_measured(transfers);
    ASSERT_TRUE(measured.ok()) << measured.status().to_string();
    EXPECT_EQ(measured->back(), piece_hash(bytes)) << size;
    EXPECT_EQ(std::memcmp(here->data(), bytes.data(), size), 0) << size;
  }
}

TEST_F(StoreCudaTest, ManyObjectsOfAnyLengthInOneBatch) {
  auto copier = *BatchCopier::create(*device_);
  std::vector<std::unique_ptr<device::DeviceBuffer>> buffers;
  std::vector<Transfer> transfers;
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 0; i < 150; ++i) {
    const auto bytes = pattern(i * 997, static_cast<unsigned>(i));
    buffers.push_back(*device_->allocate(bytes.size() + 8));
    copy(buffers.back()->data(), bytes.data(), bytes.size());
    transfers.push_back({static_cast<const std::byte*>(buffers.back()->data()), nullptr, bytes.size()});
    expected.push_back(piece_hash(bytes));
  }
  const auto measured = copier->copy_measured(transfers);
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(*measured, expected);
}

TEST_F(StoreCudaTest, AnArenaOnTheGpuSaysByWhatItIsShared) {
  ServedArena served(64 << 20, {}, device_.get());
  const device::ShareKind kind = served.arena->device_memory().share_kind();
  std::printf("shared by: %s\n", std::string(device::to_string(kind)).c_str());
  EXPECT_NE(kind, device::ShareKind::kMemoryFile);
  const auto required = Arena::create({.device = device_.get(), .fabric = device::FabricUse::kRequired}, served.clock);
  EXPECT_EQ(required.ok(), kind == device::ShareKind::kFabric) << required.status().to_string();
}

TEST_F(StoreCudaTest, WhatIsPublishedFromTheGpuIsReadOverNvlinkAndTcp) {
  ServedArena served(64 << 20, {}, device_.get());
  auto writer = *BatchWriter::create(*served.arena);
  const auto bytes = pattern(3'000'001);
  auto from = *device_->allocate(bytes.size());
  copy(from->data(), bytes.data(), bytes.size());
  const BatchWriter::Item item{"k", {static_cast<std::byte*>(from->data()), bytes.size()}};
  const auto infos = writer->publish(std::span(&item, 1), nullptr, 0);
  ASSERT_TRUE(infos.ok()) << infos.status().to_string();
  for (const std::string& url : {served.server->shm_url(), served.server->tcp_url()}) {
    std::vector<std::byte> to(bytes.size());
    const auto read = served.client(url)->get_into("k", to);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(to, bytes);
    EXPECT_EQ(read->checksum, piece_hash(bytes));
  }
}

}  // namespace
}  // namespace levada::store
