// Plans with drafts that contradict themselves are refused before anything is computed, and name what is out of range.
#include "model/draft_support_test.h"

namespace levada::model {
namespace {

class DraftPlans : public testing::Test {
 protected:
  DraftPlans() : bench(folders.target(), folders.options(), *device) {
    draft = std::move(bench.model->load_draft(folders.draft())).value();
    sequence = bench.sequence({5, 17, 30, 41, 2, 9, 11, 12, 13, 14, 15}, 5);  // four pages of four
    run_slice(bench, sequence, {6, 0, 0}, draft);
    add_slice(plan, sequence, {4, 3, 3});  // positions 6 .. 9; the block may reach 10 .. 13
  }
  void expect_refused(const std::string& word, bool with_draft = true) {
    const auto forward = bench.model->begin(plan, *bench.pool, with_draft ? draft : nullptr);
    ASSERT_FALSE(forward.ok()) << word;
    EXPECT_EQ(forward.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(forward.status().message().find(word), std::string::npos) << forward.status().message();
  }
  core::PlanSlice& slice() { return plan.slices[0]; }

  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  DraftFolders folders;
  Bench bench;
  std::shared_ptr<const Draft> draft;
  Sequence sequence;
  core::StepPlan plan;
};

TEST_F(DraftPlans, AProperOneRuns) { EXPECT_EQ(run_step(bench, plan, draft).proposed.size(), 3u); }

TEST_F(DraftPlans, AllRowsOfASliceCannotBeDrafts) {
  slice().drafts = 4;
  expect_refused("drafts of a slice 4");
  slice().drafts = -1;
  expect_refused("drafts of a slice -1");
}

TEST_F(DraftPlans, NoMoreIsProposedThanABlockHolds) {
  slice().propose = 4;
  expect_refused("tokens to propose 4 is out of range, the limit is 3");
}

TEST_F(DraftPlans, WithoutADraftNothingIsProposed) {
  plan.draft = core::kNoDraft;
  expect_refused("tokens to propose 3 is out of range, the limit is 0");
}

TEST_F(DraftPlans, TheDraftThatThePlanNamesMustBeGiven) { expect_refused("its draft was not given", false); }

TEST_F(DraftPlans, DraftContextBeginsWithinTheComputedTokens) {
  slice().draft_from = 7;
  expect_refused("the first position with draft planes 7 is out of range, the limit is 6");
  slice().draft_from = -1;
  expect_refused("the first position with draft planes -1");
}

TEST_F(DraftPlans, TheTokenBehindASliceLiesInTheVocabulary) {
  slice().next_token = 64;
  expect_refused("the token behind a slice 64 is out of range, the limit is 64");
  slice().next_token = -2;
  expect_refused("the token behind a slice -2");
}

TEST_F(DraftPlans, EverySampledRowOfTheSliceIsNamedInOrder) {
  std::swap(plan.samples[1], plan.samples[2]);
  expect_refused("the row of a slice's sample 2");
  std::swap(plan.samples[1], plan.samples[2]);
  plan.samples.pop_back();
  expect_refused("a slice's samples");
  slice().sample_row = -1;
  expect_refused("a slice's samples -1");
}

TEST_F(DraftPlans, TheBlockTableCoversTheBlock) {
  slice().block_table_pages = 3;  // 12 tokens: enough for the rows, not for the block
  expect_refused("pages of a slice 3 is out of range, the limit is 4");
}

TEST_F(DraftPlans, TheBlockEndsWithinTheContext) {
  ModelOptions options = folders.options();
  options.context_length_tokens = 13;
  Bench shorter(folders.target(), options, *device);
  const auto own = std::move(shorter.model->load_draft(folders.draft())).value();
  const auto forward = shorter.model->begin(plan, *shorter.pool, own);
  ASSERT_FALSE(forward.ok());
  EXPECT_NE(forward.status().message().find("the last position of a block 14 is out of range, the limit is 13"),
            std::string::npos)
      << forward.status().message();
}

}  // namespace
}  // namespace levada::model
