#include "cli/run_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/server_options.h"
#include "support/temporary_folder.h"

namespace levada::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kConsumer = "deployment.disaggregated.windowed_fanout.consumers.0.";

class RunTermsTest : public testing::Test {
 protected:
  RunTermsTest() {
    folder_.write("prompts.jsonl", R"({"prompt": "one"})");
    std::filesystem::create_directories(folder_.path() / "control");
  }
  Result<recipe::FanoutRecipe> recipe(std::vector<std::string> overrides = {}) const {
    const std::string root = folder_.path().string();
    std::vector<std::string> all = {"model.target_model_path=" LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama",
                                    "levada.target_layer_ids=[0, 1]", "data.prompts_path=" + root + "/prompts.jsonl",
                                    "output_dir=" + root + "/out",
                                    "deployment.disaggregated.control_dir=" + root + "/control"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    ServerOptions server;
    OptionTable table;
    describe(table, server);
    return recipe::load_fanout(LEVADA_SOURCE_DIR "/recipes/quickstart.yaml", all, table);
  }
  // As `levada up` does.
  Status start(std::vector<std::string> overrides = {}) const {
    LEVADA_ASSIGN_OR_RETURN(const recipe::FanoutRecipe read, recipe(std::move(overrides)));
    LEVADA_RETURN_IF_ERROR(check_before_start(read));
    LEVADA_ASSIGN_OR_RETURN(const RunTerms terms, run_terms_of(read));
    return agree_on_terms(read, terms);
  }
  std::string refusal(std::vector<std::string> overrides = {}) const {
    const Status status = start(std::move(overrides));
    return status.ok() ? "" : status.to_string();
  }
  const test::TemporaryFolder folder_;
};

TEST_F(RunTermsTest, TheSameRecipeIsTheSameRunWhereverAndHoweverFastItRuns) {
  ASSERT_EQ(refusal(), "");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(refusal({"levada.trainer_threads=2", "training.log_interval=5"}), "");
}

TEST_F(RunTermsTest, WhateverChangesWhatIsTrainedIsNamedWithBothValues) {
  ASSERT_EQ(refusal(), "");
  EXPECT_THAT(refusal({kConsumer + "learning_rate=0.5"}),
              AllOf(HasSubstr("b4.learning_rate was 6e-04 and is 0.5"), HasSubstr("--fresh"), Not(HasSubstr("b8"))));
  EXPECT_THAT(refusal({"run_id=other"}), HasSubstr("run_id was quickstart and is other"));
  EXPECT_THAT(refusal({"data.max_length=200"}), HasSubstr("data.max_length was 384 and is 200"));
  EXPECT_THAT(refusal({kConsumer + "consumer_id=zz"}), HasSubstr("more"));
  folder_.write("prompts.jsonl", R"({"prompt": "two"})");
  EXPECT_THAT(refusal(), HasSubstr("hash of the prompts file"));
}

TEST_F(RunTermsTest, CheckpointsOfARunThatTheControlFolderDoesNotKnowAreNotTakenOver) {
  std::filesystem::create_directories(folder_.path() / "out/b8/quickstart-step6");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("output_dir"), HasSubstr("quickstart-step6"), HasSubstr("--fresh")));
}

TEST_F(RunTermsTest, ADamagedFileIsNotGuessedAt) {
  ASSERT_EQ(refusal(), "");
  folder_.write("control/terms.txt", "nonsense\n");
  EXPECT_THAT(refusal(), HasSubstr("is damaged"));
}

TEST_F(RunTermsTest, WhatTheRecipeAloneShowsToBeWrongIsRefusedBeforeAnythingStarts) {
  EXPECT_THAT(refusal({"levada.target_layer_ids=[0, 99]"}), HasSubstr("target_layer_ids"));
  EXPECT_THAT(refusal({"levada.target_layer_ids=[-1]"}), HasSubstr("target_layer_ids"));
  EXPECT_THAT(refusal({"levada.target_layer_ids=[1, 1]"}), HasSubstr("named twice"));
  EXPECT_THAT(refusal({"model.mask_token_id=384"}), HasSubstr("mask_token_id"));
  EXPECT_THAT(refusal({"model.target_model_path=/nowhere"}), HasSubstr("/nowhere"));
  EXPECT_THAT(refusal({"run_id=a/b"}), HasSubstr("run_id"));
  EXPECT_THAT(refusal({kConsumer + "consumer_id=producer"}), HasSubstr("other parts of a run"));
  EXPECT_THAT(refusal({"data.prompts_path=/nowhere.jsonl"}), HasSubstr("/nowhere.jsonl"));
  folder_.write("prompts.jsonl", "{\"prompt\": 5}\n");
  EXPECT_THAT(refusal(), HasSubstr("line 1"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "control/terms.txt"));
}

}  // namespace
}  // namespace levada::cli
