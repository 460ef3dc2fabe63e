#include "kv/draft_ledger.h"

#include <gtest/gtest.h>

namespace levada::kv {
namespace {

using core::DraftVersion;
using core::PageId;

constexpr DraftVersion kOld{1}, kNew{2};

// Pages of four tokens; the request's table is pages 2, 0, 1.
//
//   token  0 1 2 3 | 4 5 6 7 | 8 9 10 11
//   page      2    |    0    |     1
struct OneRequest : testing::Test {
  DraftLedger ledger{3, 4};
  std::vector<PageId> table{PageId{2}, PageId{0}, PageId{1}};
};

TEST_F(OneRequest, WhatADraftWroteFromTheStartIsReadableFromTheStart) {
  ledger.on_written(table, 0, 6, kOld);
  ledger.on_written(table, 6, 9, kOld);
  EXPECT_EQ(ledger.readable_from(table, 9, kOld), 0);
}

TEST_F(OneRequest, ANewDraftSeesWhatItWroteItselfAndNothingBefore) {
  ledger.on_written(table, 0, 6, kOld);
  ledger.on_written(table, 6, 9, kNew);
  EXPECT_EQ(ledger.readable_from(table, 9, kNew), 6);
  EXPECT_EQ(ledger.readable_from(table, 9, kOld), 9) << "the old one's numbers end where the new one's begin";
}

TEST_F(OneRequest, PagesOfACachedPrefixThatNoDraftWroteAreMasked) {  // B04
  ledger.on_written(table, 0, 4, core::kNoDraft);
  ledger.on_written(table, 4, 9, kOld);
  EXPECT_EQ(ledger.readable_from(table, 9, kOld), 4);
  EXPECT_EQ(ledger.readable_from(table, 4, kOld), 4) << "nothing is readable yet";
}

TEST_F(OneRequest, AHoleEndsWhatIsReadable) {
  ledger.on_written(table, 0, 5, kOld);
  ledger.on_written(table, 5, 6, core::kNoDraft);
  ledger.on_written(table, 6, 8, kOld);
  EXPECT_EQ(ledger.readable_from(table, 8, kOld), 6);
}

TEST_F(OneRequest, APageThatWasSomebodyElsesHoldsNothingUntilItIsWritten) {
  ledger.on_written(table, 0, 12, kOld);
  ledger.on_written(table, 0, 2, core::kNoDraft);  // page 2 is a new request's
  ledger.on_written(table, 2, 4, kOld);
  EXPECT_EQ(ledger.readable_from(table, 4, kOld), 2);
}

TEST_F(OneRequest, RejectedTokensWrittenAgainChangeNothing) {
  ledger.on_written(table, 0, 6, kOld);
  ledger.on_written(table, 6, 11, kNew);
  ledger.on_written(table, 8, 12, kNew);
  EXPECT_EQ(ledger.readable_from(table, 12, kNew), 6);
}

TEST_F(OneRequest, WithoutADraftNothingIsReadable) {
  ledger.on_written(table, 0, 6, core::kNoDraft);
  EXPECT_EQ(ledger.readable_from(table, 6, core::kNoDraft), 6);
}

}  // namespace
}  // namespace levada::kv
