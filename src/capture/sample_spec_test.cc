#include "capture/sample_spec.h"

#include <gtest/gtest.h>

#include "capture/row_sink.h"

namespace levada::capture {
namespace {

const SampleLimits kLimits{.store_id = "run", .layers = 6, .hidden_size = 8, .max_sample_bytes = 4096};

SampleSpec spec() {
  return {.store_id = "run",
          .sample_id = "run:task-1",
          .features = {{"hidden_states", {4, 1}, DType::kBF16}, {"last", {kFinalNorm}, DType::kF32}},
          .passthrough = {{"input_ids", DType::kI64, {1, 2}, std::vector<std::byte>(16)}}};
}

std::string field_of(const SampleSpec& wrong) {
  const Status status = check(wrong, 10, kLimits);
  EXPECT_FALSE(status.ok());
  return status.field();
}

TEST(SampleSpec, AWellFormedOnePassesAndItsBytesAreKnownBeforehand) {
  EXPECT_TRUE(check(spec(), 10, kLimits).ok());
  EXPECT_EQ(bytes_of(spec(), 10, 8), 10 * 8 * (2 * 2 + 4) + 16);
  EXPECT_EQ(states_of(spec()), (std::vector<std::int32_t>{kFinalNorm, 1, 4}));
}

TEST(SampleSpec, EveryBreachIsRefusedNamingTheField) {
  struct Case {
    std::function<void(SampleSpec&)> breaks;
    std::string field;
  };
  const std::vector<Case> cases = {
      {[](SampleSpec& s) { s.store_id = "other"; }, "store_id"},
      {[](SampleSpec& s) { s.store_id = ""; }, "store_id"},
      {[](SampleSpec& s) { s.sample_id = "task-1"; }, "sample_id"},
      {[](SampleSpec& s) { s.sample_id = "run:" + std::string(300, 'x'); }, "sample_id"},
      {[](SampleSpec& s) { s.sample_id = "run:a/b"; }, "sample_id"},
      {[](SampleSpec& s) { s.generation = 0; }, "gen"},
      {[](SampleSpec& s) { s.generation = std::int64_t{1} << 31; }, "gen"},
      {[](SampleSpec& s) { s.features.clear(); }, "features"},
      {[](SampleSpec& s) { s.features[0].name = "a b"; }, "features"},
      {[](SampleSpec& s) { s.features[0].states = {}; }, "features.hidden_states.layers"},
      {[](SampleSpec& s) { s.features[0].states = {6}; }, "features.hidden_states.layers"},  // B23
      {[](SampleSpec& s) { s.features[0].states = {-2}; }, "features.hidden_states.layers"},
      {[](SampleSpec& s) {
         s.features[0].states = {1, 1};
       },
       "features.hidden_states.layers"},
      {[](SampleSpec& s) { s.features[0].dtype = DType::kI64; }, "features.hidden_states.dtype"},
      {[](SampleSpec& s) { s.features[1].name = "hidden_states"; }, "features"},
      {[](SampleSpec& s) { s.passthrough[0].name = "last"; }, "passthrough"},
      {[](SampleSpec& s) { s.passthrough[0].shape = {}; }, "passthrough.input_ids.shape"},
      {[](SampleSpec& s) {
         s.passthrough[0].shape = {1, -2};
       },
       "passthrough.input_ids.shape"},
      {[](SampleSpec& s) {
         s.passthrough[0].shape = {1 << 30, 1 << 30};
       },
       "passthrough.input_ids.shape"},
      {[](SampleSpec& s) {
         s.passthrough[0].shape = {1, 3};
       },
       "passthrough.input_ids.data"},
      {[](SampleSpec& s) { s.passthrough.resize(9, s.passthrough[0]); }, "passthrough"},
  };
  for (const Case& broken : cases) {
    SampleSpec wrong = spec();
    broken.breaks(wrong);
    EXPECT_EQ(field_of(wrong), broken.field);
  }
}

TEST(SampleSpec, ASampleAboveTheSizeLimitIsRefusedNamingBothSizes) {
  const Status status = check(spec(), 100, kLimits);
  EXPECT_EQ(status.code(), StatusCode::kPayloadTooLarge);
  EXPECT_NE(status.message().find("6416"), std::string::npos);
  EXPECT_NE(status.message().find("4096"), std::string::npos);
}

}  // namespace
}  // namespace levada::capture
