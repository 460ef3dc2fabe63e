#include "capture/publisher.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <future>
#include <thread>

#include "kernels/bf16.h"
#include "store/faulty_device_test.h"

namespace levada::capture {
namespace {

constexpr std::int32_t kHidden = 4;

// The value of one element of the scripted model's hidden states.
float value(std::int32_t state, std::int32_t token, std::int32_t column) {
  return static_cast<float>(state * 100 + token) + static_cast<float>(column) / 8;
}

// The same for an arena in host memory that takes rows of the host, and for one on a device (the CPU twin) that takes
// rows of the device.
class PublisherTest : public testing::TestWithParam<bool> {
 protected:
  void start(std::uint64_t arena_bytes = 1 << 20, std::int64_t wait_us = 20'000) {
    arena = std::move(store::Arena::create(
                          {.bytes = arena_bytes, .max_objects = 64, .device = GetParam() ? &device : nullptr}, clock))
                .value();
    publisher = std::make_unique<Publisher>(
        *arena, Publisher::Options{{.store_id = "run", .layers = 4, .hidden_size = kHidden}, wait_us}, metrics);
  }
  static SampleSpec spec(const std::string& task = "t", std::int64_t generation = 1) {
    SampleSpec spec{.store_id = "run",
                    .sample_id = "run:" + task,
                    .generation = generation,
                    .features = {{"hidden_states", {2, 0}, DType::kBF16}, {"last", {kFinalNorm}, DType::kF32}}};
    const std::int64_t ids[] = {7, 8, 9};
    spec.passthrough = {{"input_ids", DType::kI64, {1, 3}, std::vector<std::byte>(24)}};
    std::memcpy(spec.passthrough[0].bytes.data(), ids, 24);
    return spec;
  }
  Result<Publisher::Opened> open(SampleSpec spec, std::int32_t tokens = 3) {
    std::promise<Result<Publisher::Opened>> answer;
    publisher->open(std::move(spec), tokens, [&](Result<Publisher::Opened> opened) { answer.set_value(opened); });
    return answer.get_future().get();
  }
  core::CaptureId opened(SampleSpec spec) {
    Result<Publisher::Opened> result = open(std::move(spec));
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return std::get<core::CaptureId>(result.value());
  }
  void give(core::CaptureId id, std::int32_t first, std::int32_t count) {
    for (const std::int32_t state : {0, 1, 2, 3, kFinalNorm}) {
      std::vector<float> rows;
      for (std::int32_t token = first; token < first + count; ++token) {
        for (std::int32_t column = 0; column < kHidden; ++column) rows.push_back(value(state, token, column));
      }
      const auto view = device::TensorView::of(rows.data(), DType::kF32, {count, kHidden});
      if (publisher->takes_rows_of(device)) {
        publisher->on_device_rows(state, std::array{CapturedRows{id, {{}, first, count}, view}}, *stream);
        EXPECT_TRUE(stream->synchronize().ok());
      } else {
        publisher->on_rows(id, {{}, first, count}, state, view);
      }
    }
  }
  Result<Published> seal(core::CaptureId id) {
    std::promise<Result<Published>> answer;
    publisher->seal(id, [&](Result<Published> sealed) { answer.set_value(sealed); });
    return answer.get_future().get();
  }
  std::uint64_t used() { return arena->stats().used_bytes; }

  SystemClock clock;
  Metrics metrics;
  store::FaultyDevice device;
  std::unique_ptr<device::Stream> stream = *device.make_stream();
  std::unique_ptr<device::Stream> own_stream = std::make_unique<device::FakeStream>();
  std::unique_ptr<store::Arena> arena;
  std::unique_ptr<Publisher> publisher;
};

TEST_P(PublisherTest, StatesStandSideBySideInTheGivenOrderAndPassthroughVerbatim) {
  start();
  const core::CaptureId id = opened(spec());
  give(id, 0, 2);  // in two chunks
  give(id, 2, 1);
  const Published published = std::move(seal(id)).value();
  EXPECT_EQ(published.aux_layer_ids, (std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(published.incarnation, arena->incarnation());
  ASSERT_EQ(published.tensors.size(), 3u);
  EXPECT_EQ(published.tensors[0].shape, (std::vector<std::int64_t>{1, 3, 2 * kHidden}));

  const store::ObjectView aux = std::move(arena->view("run/run:t/g1/hidden_states")).value();
  EXPECT_EQ(aux.info().checksum, published.tensors[0].checksum);
  const auto* bits = reinterpret_cast<const kernels::Bf16*>(aux.bytes().data());
  const store::ObjectView last = std::move(arena->view("run/run:t/g1/last")).value();
  const auto* floats = reinterpret_cast<const float*>(last.bytes().data());
  for (std::int32_t token = 0; token < 3; ++token) {
    for (std::int32_t column = 0; column < kHidden; ++column) {
      EXPECT_EQ(kernels::to_float(bits[token * 8 + column]),
                kernels::to_float(kernels::to_bf16(value(2, token, column))));
      EXPECT_EQ(kernels::to_float(bits[token * 8 + 4 + column]),
                kernels::to_float(kernels::to_bf16(value(0, token, column))));
      EXPECT_EQ(floats[token * 4 + column], value(kFinalNorm, token, column));
    }
  }
  const store::ObjectView ids = std::move(arena->view("run/run:t/g1/input_ids")).value();
  EXPECT_EQ(reinterpret_cast<const std::int64_t*>(ids.bytes().data())[2], 9);
}

TEST_P(PublisherTest, NothingIsReadableBeforeTheSeal) {
  start();
  const core::CaptureId id = opened(spec());
  give(id, 0, 3);
  EXPECT_FALSE(arena->find("run/run:t/g1/input_ids").has_value());
  ASSERT_TRUE(seal(id).ok());
  EXPECT_TRUE(arena->find("run/run:t/g1/input_ids").has_value());
}

TEST_P(PublisherTest, AMissingRowFailsTheSampleAndFreesItsMemory) {  // B02
  start();
  const std::uint64_t before = used();
  const core::CaptureId id = opened(spec());
  give(id, 0, 1);
  give(id, 2, 1);  // token 1 never came
  const Result<Published> sealed = seal(id);
  ASSERT_FALSE(sealed.ok());
  EXPECT_NE(sealed.status().message().find("1 of 3 rows"), std::string::npos);
  EXPECT_EQ(used(), before);
}

TEST_P(PublisherTest, RowsBeyondTheSampleAreNotKept) {
  start();
  const core::CaptureId id = opened(spec());
  give(id, 0, 3);
  give(id, 3, 1);  // lookahead computed one more
  EXPECT_TRUE(seal(id).ok());
}

TEST_P(PublisherTest, ARetractedRequestMayWriteItsRowsAgain) {
  start();
  const core::CaptureId id = opened(spec());
  give(id, 0, 2);
  give(id, 0, 3);
  EXPECT_TRUE(seal(id).ok());
}

TEST_P(PublisherTest, ADroppedCaptureLeavesNothingAndMayBeAskedForAgain) {
  start();
  const std::uint64_t before = used();
  const core::CaptureId id = opened(spec());
  publisher->drop(id);
  publisher->drop(id);
  EXPECT_EQ(used(), before);
  give(id, 0, 3);  // a step that was on its way
  const core::CaptureId again = opened(spec());
  give(again, 0, 3);
  EXPECT_TRUE(seal(again).ok());
}

// Spec §7.2 row 1: the server's reply is lost after the write.
TEST_P(PublisherTest, TheSameGenerationAgainIsAnsweredFromTheJournal) {
  start();
  const core::CaptureId id = opened(spec());
  give(id, 0, 3);
  const Published first = std::move(seal(id)).value();
  const std::uint64_t sealed = arena->stats().sealed_bytes;
  const Publisher::Opened again = std::move(open(spec())).value();
  ASSERT_TRUE(std::holds_alternative<Published>(again));
  EXPECT_EQ(std::get<Published>(again).tensors, first.tensors);
  EXPECT_EQ(arena->stats().sealed_bytes, sealed);
}

TEST_P(PublisherTest, ASampleBeingCapturedIsRefusedASecondTime) {
  start();
  opened(spec());
  EXPECT_EQ(open(spec()).status().code(), StatusCode::kAlreadyExists);
}

TEST_P(PublisherTest, AnOlderGenerationIsStaleAndANewerReplacesIt) {
  start();
  const core::CaptureId old = opened(spec("t", 2));
  give(old, 0, 3);
  ASSERT_TRUE(seal(old).ok());
  EXPECT_EQ(open(spec("t", 1)).status().field(), "gen");
  SampleSpec newer = spec("t", 3);
  newer.replace = true;
  const core::CaptureId id = opened(newer);
  EXPECT_FALSE(arena->find("run/run:t/g2/last").has_value());
  give(id, 0, 3);
  ASSERT_TRUE(seal(id).ok());
  EXPECT_TRUE(arena->find("run/run:t/g3/last").has_value());
}

TEST_P(PublisherTest, AFailedNewerGenerationDoesNotLetTheOldOneBackIn) {
  start();
  publisher->drop(opened(spec("t", 5)));
  EXPECT_EQ(open(spec("t", 4)).status().field(), "gen");
}

TEST_P(PublisherTest, AGenerationWhoseObjectsWereRemovedIsNotNamedAgain) {
  start();
  const core::CaptureId id = opened(spec());
  give(id, 0, 3);
  ASSERT_TRUE(seal(id).ok());
  arena->remove("run/run:t/g1/last");
  const Status refused = open(spec()).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("removed"), std::string::npos);
}

// Spec §7.2 rows 26 to 28.
TEST_P(PublisherTest, AFullArenaIsWaitedForThenFailsAloneAndASampleAboveItIsRefusedAtOnce) {
  start(64 << 10, 30'000'000);
  SampleSpec large = spec("large");
  large.passthrough[0] = {"input_ids", DType::kU8, {40 << 10}, std::vector<std::byte>(40 << 10)};
  const core::CaptureId first = opened(large);
  SampleSpec second = large;
  second.sample_id = "run:second";
  std::promise<Result<Publisher::Opened>> answer;
  publisher->open(second, 3, [&](Result<Publisher::Opened> opened) { answer.set_value(opened); });
  std::future<Result<Publisher::Opened>> waiting = answer.get_future();
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  publisher->drop(first);
  EXPECT_TRUE(waiting.get().ok());

  SampleSpec above = spec("above");
  above.passthrough[0] = {"input_ids", DType::kU8, {100 << 10}, std::vector<std::byte>(100 << 10)};
  EXPECT_EQ(open(above).status().code(), StatusCode::kPayloadTooLarge);
}

TEST_P(PublisherTest, AFullArenaThatStaysFullIsAnErrorNamingSizes) {
  start(64 << 10, 10'000);
  SampleSpec large = spec("large");
  large.passthrough[0] = {"input_ids", DType::kU8, {40 << 10}, std::vector<std::byte>(40 << 10)};
  opened(large);
  large.sample_id = "run:second";
  EXPECT_EQ(open(large).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(open(spec("small")).ok()) << "its neighbours are not touched";
}

TEST_P(PublisherTest, WhatIsStillFillingWhenThePublisherGoesIsFreed) {
  start();
  const std::uint64_t before = used();
  opened(spec());
  publisher.reset();
  EXPECT_EQ(used(), before);
}

INSTANTIATE_TEST_SUITE_P(Arenas, PublisherTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "device" : "host"; });

class DevicePublisherTest : public PublisherTest {
 protected:
  // The rows of one state, of three tokens.
  static std::vector<kernels::Bf16> rows_of(std::int32_t state) {
    std::vector<kernels::Bf16> rows;
    for (std::int32_t token = 0; token < 3; ++token)
      for (std::int32_t column = 0; column < kHidden; ++column)
        rows.push_back(kernels::to_bf16(value(state, token, column)));
    return rows;
  }
  // Rows of state 2, of three tokens.
  void give_rows(core::CaptureId id, std::vector<kernels::Bf16>& rows, device::Stream& by) {
    const auto view = device::TensorView::of(rows.data(), DType::kBF16, {3, kHidden});
    publisher->on_device_rows(2, std::array{CapturedRows{id, {{}, 0, 3}, view}}, by);
  }
  static SampleSpec one_state() {
    SampleSpec one = spec();
    one.features = {{"hidden_states", {2}, DType::kBF16}};
    return one;
  }
};
INSTANTIATE_TEST_SUITE_P(Arenas, DevicePublisherTest, testing::Values(true));

TEST_P(DevicePublisherTest, T7RowsAreCopiedWhenTheirStreamComputedThemAndMayBeOverwrittenAfter) {
  start();
  auto& late = static_cast<device::FakeStream&>(*own_stream);
  const core::CaptureId id = opened(one_state());
  const auto computed = rows_of(2);
  std::vector<kernels::Bf16> rows(computed.size());
  late.hold();
  ASSERT_TRUE(late.copy(rows.data(), computed.data(), rows.size() * 2).ok());
  give_rows(id, rows, late);
  ASSERT_TRUE(late.fill(rows.data(), 0xEE, rows.size() * 2).ok());
  std::promise<Result<Published>> answer;
  publisher->seal(id, [&](Result<Published> sealed) { answer.set_value(sealed); });
  auto sealed = answer.get_future();
  EXPECT_EQ(sealed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_FALSE(arena->find("run/run:t/g1/hidden_states").has_value());
  late.release();
  ASSERT_TRUE(sealed.get().ok());
  const auto view = arena->view("run/run:t/g1/hidden_states");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(std::memcmp(view->bytes().data(), computed.data(), computed.size() * 2), 0);
  ASSERT_TRUE(late.synchronize().ok());  // the overwrite needs `rows` until then
}

TEST_P(DevicePublisherTest, I6EveryTensorsAddressIsWhereItsBytesLie) {
  start();
  const core::CaptureId id = opened(one_state());
  auto rows = rows_of(2);
  give_rows(id, rows, *stream);
  const auto published = seal(id);
  ASSERT_TRUE(published.ok());
  ASSERT_EQ(published->addresses.size(), published->tensors.size());
  for (std::size_t i = 0; i < published->tensors.size(); ++i) {
    const auto view = arena->view("run/run:t/g1/" + published->tensors[i].name);
    EXPECT_EQ(published->addresses[i], reinterpret_cast<std::uintptr_t>(view->bytes().data()));
  }
}

TEST_P(DevicePublisherTest, ADroppedCapturesMemoryIsFreeOnlyWhenItsLateCopiesHaveHappened) {
  start();
  auto& late = static_cast<device::FakeStream&>(*own_stream);
  const core::CaptureId id = opened(one_state());
  auto rows = rows_of(2);
  late.hold();
  give_rows(id, rows, late);
  publisher->drop(id);
  EXPECT_GT(used(), 0u);
  late.release();
  while (used() != 0) std::this_thread::yield();
}

TEST_P(DevicePublisherTest, F34ADevicesErrorFailsTheCaptureAloneAndLeavesNoObject) {
  start();
  const core::CaptureId id = opened(one_state());
  auto rows = rows_of(2);
  device.fail_after(0);
  give_rows(id, rows, *stream);
  device.fail_after(-1);
  EXPECT_EQ(seal(id).status().code(), StatusCode::kInternal);
  EXPECT_EQ(used(), 0u);
}

}  // namespace
}  // namespace levada::capture
