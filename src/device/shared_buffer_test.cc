// Memory of a device that another process maps, on the CPU twin; the GPU's is tested by store_cuda_test.
#include <gtest/gtest.h>

#include <cstring>

#include "device/cpu_device.h"

namespace levada::device {
namespace {

TEST(SharedBufferTest, AnImporterSeesWhatTheOwnerWrites) {
  const auto device = make_cpu_device();
  auto owner = device->allocate_shared(8192, FabricUse::kIfPermitted);
  ASSERT_TRUE(owner.ok()) << owner.status().to_string();
  EXPECT_EQ((*owner)->share_kind(), ShareKind::kMemoryFile);
  auto imported = device->import_shared((*owner)->share_kind(), *(*owner)->export_descriptor(), 8192);
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  std::memcpy((*owner)->data(), "written later", 14);
  EXPECT_STREQ(static_cast<const char*>((*imported)->data()), "written later");
}

TEST(SharedBufferTest, AnImportOutlivesItsExporter) {
  const auto device = make_cpu_device();
  auto owner = *device->allocate_shared(4096, FabricUse::kNever);
  std::memcpy(owner->data(), "still here", 11);
  auto imported = *device->import_shared(owner->share_kind(), *owner->export_descriptor(), 4096);
  owner.reset();
  EXPECT_STREQ(static_cast<const char*>(imported->data()), "still here");
}

TEST(SharedBufferTest, ARequiredFabricHandleIsNeverReplacedByAnotherKind) {
  const auto buffer = make_cpu_device()->allocate_shared(4096, FabricUse::kRequired);
  EXPECT_EQ(buffer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(buffer.status().field(), "fabric");
}

TEST(SharedBufferTest, WhatIsNotSuchMemoryIsRefused) {
  const auto device = make_cpu_device();
  auto owner = *device->allocate_shared(4096, FabricUse::kNever);
  EXPECT_EQ(device->import_shared(ShareKind::kMemoryFile, *owner->export_descriptor(), 8192).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(device->import_shared(ShareKind::kMemoryFile, Fd(), 4096).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(device->import_shared(ShareKind::kPosixFd, *owner->export_descriptor(), 4096).status().code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace levada::device
