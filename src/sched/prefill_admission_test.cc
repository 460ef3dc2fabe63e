#include "sched/prefill_admission.h"

#include <gtest/gtest.h>

namespace levada::sched {
namespace {

core::KvLayout pages_of(std::int32_t page_size) { return {page_size, {{"k", "target", DType::kF32, 1, {0}}}}; }

AdmissionLimits limits(std::optional<std::int64_t> chunk) {
  AdmissionLimits limits;
  limits.request_slots = 8;
  limits.input_tokens = 16384;
  limits.chunk_tokens = chunk;
  return limits;
}

TEST(PrefillAdmission, WhatFillsThePoolExactlyIsAdmitted) {
  const core::KvLayout layout = pages_of(16);
  // 100 + 60 tokens = 10 pages
  EXPECT_EQ(PrefillAdmission(layout, limits({})).try_add({0, 100, 60}, 10).extend_tokens, 100);
  const AdmissionVerdict refused = PrefillAdmission(layout, limits({})).try_add({0, 100, 60}, 9);
  EXPECT_EQ(refused.extend_tokens, 0);
  EXPECT_EQ(refused.reason, AdmissionReason::kNoToken);
}

TEST(PrefillAdmission, PagesAreRoundedOnceOverPrefixInputAndOutput) {
  const core::KvLayout layout = pages_of(16);
  // prefix 2 pages | input up to 40 | output up to 48: one page beyond the prefix, though both parts are partial
  EXPECT_EQ(PrefillAdmission(layout, limits({})).try_add({32, 40, 8}, 1).extend_tokens, 8);
}

TEST(PrefillAdmission, ReservedPagesOfRunningRequestsAreNotOffered) {
  const core::KvLayout layout = pages_of(1);
  AdmissionLimits some = limits({});
  some.reserved_pages = 5;
  EXPECT_EQ(PrefillAdmission(layout, some).try_add({0, 10, 10}, 24).reason, AdmissionReason::kNoToken);
  EXPECT_EQ(PrefillAdmission(layout, some).try_add({0, 10, 10}, 25).extend_tokens, 10);
}

TEST(PrefillAdmission, OutputBeyondTheEstimateIsNotReserved) {
  const core::KvLayout layout = pages_of(1);
  EXPECT_EQ(PrefillAdmission(layout, limits({})).try_add({0, 10, 100'000}, 10 + 4096).extend_tokens, 10);
}

TEST(PrefillAdmission, TheRequestCapIsTestedFirst) {
  const core::KvLayout layout = pages_of(1);
  AdmissionLimits none = limits({});
  none.request_slots = 0;
  EXPECT_EQ(PrefillAdmission(layout, none).try_add({0, 10, 10}, 0).reason, AdmissionReason::kOther);
}

TEST(PrefillAdmission, APartOfAPromptEndsOnAPageAndNothingFollowsIt) {
  const core::KvLayout layout = pages_of(16);
  PrefillAdmission admission(layout, limits(100));
  // prefix 32 + chunk 100 = 132 -> 128
  const AdmissionVerdict part = admission.try_add({32, 500, 10}, 1000);
  EXPECT_EQ(part.extend_tokens, 96);
  EXPECT_EQ((32 + part.extend_tokens) % 16, 0);
  EXPECT_EQ(admission.try_add({0, 1, 1}, 1000).reason, AdmissionReason::kOther);
}

TEST(PrefillAdmission, AnUnfinishedRequestGoesFirstAndLeavesTheRestOfTheChunk) {
  const core::KvLayout layout = pages_of(16);
  PrefillAdmission admission(layout, limits(64));
  EXPECT_EQ(admission.continue_chunk(128, 140), 12);  // charged as one page
  EXPECT_EQ(admission.try_add({0, 100, 1}, 1000).extend_tokens, 48);
}

TEST(PrefillAdmission, AChunkBelowOnePageIsOnePage) {
  const core::KvLayout layout = pages_of(16);
  EXPECT_EQ(PrefillAdmission(layout, limits(1)).try_add({0, 100, 1}, 1000).extend_tokens, 16);
}

TEST(PrefillAdmission, WithoutChunkingTheInputCapBindsOnlyASecondRequest) {
  const core::KvLayout layout = pages_of(1);
  AdmissionLimits capped = limits({});
  capped.input_tokens = 100;
  PrefillAdmission first(layout, capped);
  const AdmissionVerdict alone = first.try_add({0, 150, 1}, 1000);
  EXPECT_EQ(alone.extend_tokens, 150);
  EXPECT_EQ(alone.reason, AdmissionReason::kOther);
  PrefillAdmission second(layout, capped);
  EXPECT_EQ(second.try_add({0, 60, 1}, 1000).reason, AdmissionReason::kContinue);
  EXPECT_EQ(second.try_add({0, 60, 1}, 1000).reason, AdmissionReason::kOther);
}

TEST(PrefillAdmission, AnExhaustedPoolIsSaidWithTheRequestThatExhaustsIt) {
  const core::KvLayout layout = pages_of(1);
  EXPECT_EQ(PrefillAdmission(layout, limits({})).try_add({0, 10, 10}, 20).reason, AdmissionReason::kNoToken);
}

TEST(CheckFits, OneTokenOfOutputMustFitContextAndPool) {
  const core::KvLayout layout = pages_of(16);
  EXPECT_TRUE(check_fits(layout, 4096, 1000, 4095).ok());
  const Status context = check_fits(layout, 4096, 1000, 4096);
  EXPECT_EQ(context.code(), StatusCode::kPayloadTooLarge);
  EXPECT_NE(context.message().find("The input (4096 tokens) is longer than the model's context length (4096 tokens"),
            std::string::npos);
  EXPECT_TRUE(check_fits(layout, 4096, 10, 159).ok());
  const Status pool = check_fits(layout, 4096, 10, 160);
  EXPECT_EQ(pool.code(), StatusCode::kPayloadTooLarge);
  EXPECT_NE(pool.message().find("KV cache of this server (160 tokens"), std::string::npos);
}

}  // namespace
}  // namespace levada::sched
