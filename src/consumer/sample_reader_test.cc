// Reading leased samples: what is verified, what is retried, what is given up, and what is never used again.
#include "consumer/sample_reader.h"

#include <gtest/gtest.h>

#include "consumer/test_samples.h"
#include "store/faulty_device_test.h"
#include "store/test_store.h"

namespace levada::consumer {
namespace {

// A store of another process: copies only, and fails as ordered.
class CopyingStore final : public store::ObjectStore {
 public:
  explicit CopyingStore(store::Arena& arena, std::function<Status(std::span<std::byte>)>& fault)
      : local_(arena), fault_(fault) {}
  store::Capabilities capabilities() const override { return {true, true, true, true, false, false}; }
  std::uint64_t incarnation() const override { return local_.incarnation(); }
  Result<std::optional<store::ObjectInfo>> is_exist(std::string_view key) override { return local_.is_exist(key); }
  Status put_from(std::string_view key, std::span<const std::byte> bytes, const store::PutOptions& options) override {
    return local_.put_from(key, bytes, options);
  }
  Result<store::ObjectInfo> get_into(std::string_view key, std::span<std::byte> to, std::uint64_t life) override {
    auto read = local_.get_into(key, to, life);
    if (fault_) {
      if (const Status status = fault_(to); !status.ok()) return status;
    }
    return read;
  }
  Result<store::RemoveOutcome> remove(std::string_view key) override { return local_.remove(key); }
  Result<store::RemovedCount> remove_prefix(std::string_view prefix) override { return local_.remove_prefix(prefix); }
  Result<store::Lease> lease(std::string_view key, std::int64_t ttl_us, std::uint64_t life) override {
    return local_.lease(key, ttl_us, life);
  }

 private:
  store::LocalStore local_;
  std::function<Status(std::span<std::byte>)>& fault_;
};

class SampleReaderTest : public testing::Test {
 protected:
  SampleReaderTest() { make_arena(); }

  void make_arena() {
    arena_ = *store::Arena::create({.bytes = 1 << 18, .max_objects = 256, .prefault = false}, clock_);
  }
  std::unique_ptr<SampleReader> reader(bool copies, std::uint64_t max_quarantined = 1 << 20) {
    return std::make_unique<SampleReader>(
        SampleReader::Options{max_quarantined, true}, card_,
        [this, copies](const std::string&) -> Result<std::unique_ptr<store::ObjectStore>> {
          if (!may_open_.ok()) return may_open_;
          if (copies) return std::unique_ptr<store::ObjectStore>(std::make_unique<CopyingStore>(*arena_, fault_));
          return std::unique_ptr<store::ObjectStore>(std::make_unique<store::LocalStore>(*arena_));
        },
        pause_);
  }
  fanout::GrantedLease lease_of(const core::SampleRef& ref, std::int64_t p) const {
    return {"t", p, ref.sample_id, ref.generation, std::make_shared<const core::SampleRef>(ref), false, 30'000};
  }
  // The reason under which the sample was lost.
  std::string lost_reason(SampleReader& reader, const core::SampleRef& ref, std::int64_t p = 0) {
    auto outcome = reader.read(lease_of(ref, p), [] { return true; });
    if (!outcome.ok()) return outcome.status().to_string();
    const auto* lost = std::get_if<SampleReader::Lost>(&*outcome);
    return lost == nullptr ? "not lost" : std::string(to_string(lost->reason));
  }

  ManualClock clock_;
  ClockPause pause_{clock_};
  const RunCard card_ = small_card(4);
  std::unique_ptr<store::Arena> arena_;
  std::function<Status(std::span<std::byte>)> fault_;
  Status may_open_;
};

TEST_F(SampleReaderTest, BothWaysOfReadingGiveTheBytesThatWereStored) {
  const core::SampleRef ref = put_sample(*arena_, card_, 2, 1);
  for (const bool copies : {false, true}) {
    auto reader = this->reader(copies);
    auto outcome = reader->read(lease_of(ref, 2), [] { return true; });
    ASSERT_TRUE(outcome.ok());
    auto& sample = std::get<ReadSample>(*outcome);
    EXPECT_EQ(sample.is_copy, copies);
    EXPECT_EQ(sample.sample_id, "run:p2");
    EXPECT_EQ(std::vector(sample.input_ids.begin(), sample.input_ids.end()), input_ids(2));
    EXPECT_EQ(std::vector(sample.hidden_states.begin(), sample.hidden_states.end()),
              numbers<std::uint16_t>(2, tokens_of(2) * 2 * kHidden, 7));
    EXPECT_EQ(sample.loss_mask.size(), 4u);
  }
}

TEST_F(SampleReaderTest, AnEpochsMarkIsNoPartOfTheSamplesName) {
  RunCard card = card_;
  card.prompts = 2;  // positions 2 and 3 are the second epoch
  core::SampleRef ref = put_sample(*arena_, card, 2, 1);
  SampleReader reader(
      {}, card,
      [&](const std::string&) -> Result<std::unique_ptr<store::ObjectStore>> {
        return std::unique_ptr<store::ObjectStore>(std::make_unique<store::LocalStore>(*arena_));
      },
      pause_);
  auto outcome = reader.read(lease_of(ref, 2), [] { return true; });
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(std::get<ReadSample>(*outcome).epoch, 1);
  EXPECT_EQ(std::get<ReadSample>(*outcome).sample_id, "run:p2");
}

TEST_F(SampleReaderTest, V4AnObjectThatIsGoneIsReported) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  arena_->remove("store/run:p0/g1/loss_mask");
  EXPECT_EQ(lost_reason(*reader(false), ref), "gone");
  EXPECT_EQ(lost_reason(*reader(true), ref), "gone");
}

TEST_F(SampleReaderTest, F3ObjectsOfAnotherIncarnationAreGoneEvenUnderTheSameKeys) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  make_arena();
  put_sample(*arena_, card_, 0, 1);
  EXPECT_EQ(lost_reason(*reader(false), ref), "gone");
  EXPECT_EQ(lost_reason(*reader(true), ref), "gone");
}

TEST_F(SampleReaderTest, V4BytesThatDoNotMatchTheirChecksumAreReported) {
  core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  ref.tensors[0].checksum ^= 1;
  EXPECT_EQ(lost_reason(*reader(false), ref), "bad_bytes");
  EXPECT_EQ(lost_reason(*reader(true), ref), "bad_bytes");
}

TEST_F(SampleReaderTest, I29AShortObjectYieldsNoTensor) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  ASSERT_EQ(arena_->remove("store/run:p0/g1/hidden_states"), store::RemoveOutcome::kFreed);
  ASSERT_TRUE(arena_->put_from("store/run:p0/g1/hidden_states", std::vector<std::byte>(8)).ok());
  EXPECT_EQ(lost_reason(*reader(false), ref), "short_read");
  EXPECT_EQ(lost_reason(*reader(true), ref), "short_read");
}

TEST_F(SampleReaderTest, V2AFirstSampleThatIsNotFiniteIsReported) {
  core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  const std::vector<std::byte> infinite(ref.tensors[0].bytes(), std::byte{0xFF});
  arena_->remove("store/run:p0/g1/hidden_states");
  ASSERT_TRUE(arena_->put_from("store/run:p0/g1/hidden_states", infinite).ok());
  ref.tensors[0].checksum = hash64(infinite);
  EXPECT_EQ(lost_reason(*reader(false), ref), "bad_bytes");
}

TEST_F(SampleReaderTest, F36ATransferThatFailsIsRetriedIntoNewBuffersAfter2And4And8Seconds) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  auto reader = this->reader(true);
  std::vector<const std::byte*> buffers;
  fault_ = [&](std::span<std::byte> to) {
    buffers.push_back(to.data());
    return buffers.size() <= 3 ? unavailable("the transfer timed out") : Status();
  };
  auto outcome = reader->read(lease_of(ref, 0), [] { return true; });
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(std::holds_alternative<ReadSample>(*outcome));
  EXPECT_EQ(clock_.now_us(), 14'000'000);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(std::count(buffers.begin(), buffers.end(), buffers[i]), 1);
  EXPECT_EQ(reader->pool().quarantined_bytes(), 3 * ref.tensors[0].bytes());
}

TEST_F(SampleReaderTest, F36ATransferThatKeepsFailingIsReportedLost) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  fault_ = [](std::span<std::byte>) { return unavailable("the transfer timed out"); };
  EXPECT_EQ(lost_reason(*reader(true), ref), "io");
  may_open_ = unavailable("nobody listens");
  EXPECT_EQ(lost_reason(*reader(false), ref), "io");
}

TEST_F(SampleReaderTest, F36QuarantineBeyondItsLimitEndsTheConsumer) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  fault_ = [](std::span<std::byte>) { return unavailable("the transfer timed out"); };
  auto reader = this->reader(true, 40);
  const auto outcome = reader->read(lease_of(ref, 0), [] { return true; });
  EXPECT_EQ(outcome.status().code(), StatusCode::kResourceExhausted);
}

TEST_F(SampleReaderTest, B31F19ALeaseThatEndedDuringTheReadDiscardsTheBytes) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  for (const bool copies : {false, true}) {
    auto reader = this->reader(copies);
    const auto outcome = reader->read(lease_of(ref, 0), [] { return false; });
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(std::holds_alternative<SampleReader::Expired>(*outcome));
  }
}

TEST_F(SampleReaderTest, F36RetriesEndWithTheLease) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  fault_ = [](std::span<std::byte>) { return unavailable("the transfer timed out"); };
  auto reader = this->reader(true);
  const auto outcome = reader->read(lease_of(ref, 0), [&] { return clock_.now_us() < 3'000'000; });
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(std::holds_alternative<SampleReader::Expired>(*outcome));
  EXPECT_EQ(clock_.now_us(), 6'000'000);
}

TEST_F(SampleReaderTest, AStoreThatRefusesTheTokenEndsTheConsumer) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  may_open_ = Status(StatusCode::kUnauthenticated, "wrong token");
  EXPECT_EQ(reader(true)->read(lease_of(ref, 0), [] { return true; }).status().code(), StatusCode::kUnauthenticated);
}

// Stores whose objects lie on a device (the CPU's twin), which this process maps.
class DeviceReaderTest : public testing::Test {
 protected:
  std::unique_ptr<SampleReader> reader(device::Device* device, bool in_place = true) {
    SampleReader::Options options;
    options.device = device;
    options.in_place = in_place;
    return std::make_unique<SampleReader>(
        options, card_,
        [this, device](const std::string& url) {
          return store::open_store(url, store::kToken, {.device = device}, served_.clock);
        },
        pause_);
  }
  core::SampleRef put(std::int64_t p) { return put_sample(*served_.arena, card_, p, 1, served_.server->shm_url()); }
  Result<SampleReader::Outcome> read(SampleReader& reader, const core::SampleRef& ref, std::int64_t p) {
    return reader.read({"t", p, ref.sample_id, 1, std::make_shared<const core::SampleRef>(ref), false, 30'000},
                       [] { return true; });
  }
  static bool verify(SampleReader& reader, const ReadSample& sample) {
    const ReadSample* const samples[] = {&sample};
    return reader.verify(samples).value().front();
  }
  static std::vector<std::uint16_t> features(std::int64_t p) {
    return numbers<std::uint16_t>(p, tokens_of(p) * 2 * kHidden, 7);
  }

  store::FaultyDevice device_;
  store::ServedArena served_{1 << 18, {}, &device_};
  ManualClock clock_;
  ClockPause pause_{clock_};
  const RunCard card_ = small_card(4);
};

TEST_F(DeviceReaderTest, FeaturesAreUsedInTheArenaAndTheRestComesToTheHost) {
  auto reader = this->reader(&device_);
  const core::SampleRef ref = put(2);
  const auto outcome = read(*reader, ref, 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  const auto& sample = std::get<ReadSample>(*outcome);
  EXPECT_TRUE(sample.in_place);
  EXPECT_FALSE(sample.is_copy) << "its lease lasts as long as it is used";
  EXPECT_EQ(std::vector(sample.hidden_states.begin(), sample.hidden_states.end()), features(2));
  EXPECT_EQ(std::vector(sample.input_ids.begin(), sample.input_ids.end()), input_ids(2));
  EXPECT_EQ(verify(*reader, sample), true);
  EXPECT_TRUE(sample.still_there());
  EXPECT_EQ(served_.arena->remove("store/run:p2/g1/hidden_states"), store::RemoveOutcome::kStillRead);
  EXPECT_FALSE(sample.still_there());
  EXPECT_EQ(std::vector(sample.hidden_states.begin(), sample.hidden_states.end()), features(2)) << "not used anew";
}

TEST_F(DeviceReaderTest, WhatMayNotStayInTheArenaGoesFromDeviceToDevice) {
  auto reader = this->reader(&device_, /*in_place=*/false);
  const core::SampleRef ref = put(2);
  const auto outcome = read(*reader, ref, 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  const auto& sample = std::get<ReadSample>(*outcome);
  EXPECT_TRUE(sample.is_copy) << "its lease may end at once";
  EXPECT_FALSE(sample.unverified) << "it was measured on its way";
  EXPECT_EQ(std::vector(sample.hidden_states.begin(), sample.hidden_states.end()), features(2));
  EXPECT_EQ(served_.arena->remove("store/run:p2/g1/hidden_states"), store::RemoveOutcome::kFreed);
}

TEST_F(DeviceReaderTest, AsManyAsMayBeUsedInPlaceLeaveRoomForReading) {
  auto reader = this->reader(&device_);
  const core::SampleRef ref = put(2);
  std::vector<ReadSample> samples;
  for (std::int64_t i = 0; i < SampleReader::kMostInPlace; ++i) {
    auto outcome = read(*reader, ref, 2);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    ASSERT_TRUE(std::holds_alternative<ReadSample>(*outcome)) << i;
    samples.push_back(std::move(std::get<ReadSample>(*outcome)));
  }
}

TEST_F(DeviceReaderTest, FromStoresInHostMemoryFeaturesAreVerifiedAndBroughtToTheDevice) {
  store::ServedArena host(1 << 18);
  for (const std::string& url : {host.server->shm_url(), host.server->tcp_url()}) {
    auto reader = this->reader(&device_);
    const std::int64_t p = url == host.server->tcp_url();
    core::SampleRef ref = put_sample(*host.arena, card_, p, 1, url);
    const auto outcome = read(*reader, ref, p);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    const auto& sample = std::get<ReadSample>(*outcome);
    EXPECT_TRUE(sample.is_copy) << url;
    EXPECT_FALSE(sample.in_place);
    EXPECT_EQ(std::vector(sample.hidden_states.begin(), sample.hidden_states.end()), features(p));
    EXPECT_EQ(std::vector(sample.input_ids.begin(), sample.input_ids.end()), input_ids(p));
    ref.tensors[0].checksum ^= 1;
    EXPECT_TRUE(std::holds_alternative<SampleReader::Lost>(*read(*reader, ref, p)));
  }
}

TEST_F(DeviceReaderTest, WithoutADeviceTheyComeThroughTheSocket) {
  auto reader = this->reader(nullptr);
  const core::SampleRef ref = put(2);
  const auto outcome = read(*reader, ref, 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  const auto& sample = std::get<ReadSample>(*outcome);
  EXPECT_FALSE(sample.features_on_device);
  EXPECT_EQ(std::vector(sample.hidden_states.begin(), sample.hidden_states.end()), features(2));
}

TEST_F(DeviceReaderTest, V4OtherBytesOfTheRightLengthAreFoundBeforeAnythingComesOfThem) {
  core::SampleRef ref = put(0);
  ref.tensors[0].checksum ^= 1;
  const auto copying = this->reader(&device_, /*in_place=*/false), in_place = this->reader(&device_);
  const auto copied = read(*copying, ref, 0);
  ASSERT_TRUE(copied.ok());
  EXPECT_EQ(std::get<SampleReader::Lost>(*copied).reason, fanout::LossReason::kBadBytes);
  const auto used = read(*in_place, ref, 0);
  ASSERT_TRUE(used.ok());
  EXPECT_EQ(verify(*in_place, std::get<ReadSample>(*used)), false);
}

TEST_F(DeviceReaderTest, V2AFirstSampleThatIsNotFiniteIsReportedFromTheDeviceToo) {
  auto reader = this->reader(&device_);
  core::SampleRef ref = put(0);
  const std::vector<std::byte> infinite(ref.tensors[0].bytes(), std::byte{0xFF});
  served_.arena->remove("store/run:p0/g1/hidden_states");
  ASSERT_TRUE(served_.arena->put_from("store/run:p0/g1/hidden_states", infinite).ok());
  ref.tensors[0].checksum = hash64(infinite);
  const auto outcome = read(*reader, ref, 0);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(std::get<SampleReader::Lost>(*outcome).reason, fanout::LossReason::kBadBytes);
}

TEST_F(DeviceReaderTest, F34ADeviceThatFailsEndsTheConsumerInsteadOfLosingSamples) {
  auto reader = this->reader(&device_);
  const core::SampleRef ref = put(0);
  ASSERT_TRUE(read(*reader, ref, 0).ok());
  device_.fail_after(0);
  EXPECT_EQ(read(*reader, ref, 0).status().code(), StatusCode::kInternal);
  device_.fail_after(-1);
}

// A view keeps its bytes whatever becomes of the object.
TEST_F(SampleReaderTest, B31RemovalUnderAViewChangesNoByteOfIt) {
  const core::SampleRef ref = put_sample(*arena_, card_, 0, 1);
  auto reader = this->reader(false);
  auto outcome = reader->read(lease_of(ref, 0), [] { return true; });
  ASSERT_TRUE(outcome.ok());
  for (const auto& tensor : ref.tensors) {
    EXPECT_EQ(arena_->remove("store/run:p0/g1/" + tensor.name), store::RemoveOutcome::kStillRead);
  }
  for (std::int64_t p = 1; p < 4; ++p) put_sample(*arena_, card_, p, 1);
  const auto& sample = std::get<ReadSample>(*outcome);
  EXPECT_EQ(std::vector(sample.input_ids.begin(), sample.input_ids.end()), input_ids(0));
}

}  // namespace
}  // namespace levada::consumer
