#include "cli/run_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/server_options.h"
#include "recipe/launch_plan.h"

namespace levada::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<recipe::FanoutRecipe> shipped(const std::string& name, const std::vector<std::string>& overrides = {}) {
  ServerOptions server;
  OptionTable table;
  describe(table, server);
  return recipe::load_fanout(LEVADA_SOURCE_DIR "/recipes/" + name, overrides, table);
}

TEST(RunSetup, TheShippedRecipesLoadAndPlan) {
  for (const char* name : {"quickstart.yaml", "fanout-smollm2.yaml"}) {
    const auto recipe = shipped(name);
    ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
    EXPECT_TRUE(recipe->unused.empty());
    EXPECT_EQ(recipe::make_plan(*recipe, {}).commands.size(), 4u);
  }
}

TEST(RunSetup, TheQuickstartTrainsThreeShapesFor24StepsOn48Prompts) {
  const auto recipe = shipped("quickstart.yaml");
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  EXPECT_EQ(recipe->data.max_prompts, 48);
  EXPECT_EQ(recipe->levada.answer_max_tokens, 96);
  std::vector<std::string> shapes;
  for (const recipe::Consumer& consumer : recipe->consumers) {
    EXPECT_EQ(recipe->steps_of(consumer), 24);
    EXPECT_EQ(consumer.quantum(), 2);
    shapes.push_back(std::to_string(*consumer.model.draft_block_size) + "/" +
                     std::to_string(consumer.training.num_anchors));
  }
  EXPECT_THAT(shapes, ElementsAre("4/64", "8/128", "16/256"));
}

TEST(RunSetup, ADraftTakesItsShapesFromTheTargetAndItsOwnFromTheRecipe) {
  const auto recipe = shipped("quickstart.yaml");
  const auto draft = draft_config_of(*recipe, recipe->consumers[2]);
  ASSERT_TRUE(draft.ok()) << draft.status().to_string();
  EXPECT_EQ(draft->hidden, 576);
  EXPECT_EQ(draft->heads, 9);
  EXPECT_EQ(draft->kv_heads, 3);
  EXPECT_EQ(draft->intermediate, 1536);
  EXPECT_EQ(draft->vocabulary, 49152);
  EXPECT_EQ(draft->num_target_layers, 30);
  EXPECT_EQ(draft->norm_eps, 1e-5) << "as config.json writes it, not as a float";
  EXPECT_EQ(draft->layers, 1);
  EXPECT_EQ(draft->block_size, 16);
  EXPECT_EQ(draft->mask_token_id, 4);
  EXPECT_THAT(captured_layers(*recipe).value(), ElementsAre(1, 8, 14, 20, 27));
}

TEST(RunSetup, WithoutLayersNamedTheUsualOnesAreCaptured) {
  const auto recipe = shipped("quickstart.yaml", {"levada.target_layer_ids=[]", "model.draft_num_hidden_layers=5"});
  EXPECT_THAT(captured_layers(*recipe).value(), ElementsAre(1, 8, 14, 20, 27));
}

TEST(RunSetup, DraftsThatReadDifferentLayersAreRefused) {
  const std::string b16 = "deployment.disaggregated.windowed_fanout.consumers.2.";
  const auto recipe = shipped("quickstart.yaml",
                              {"levada.target_layer_ids=[]", b16 + "overrides={model: {draft_num_hidden_layers: 2}}"});
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  EXPECT_THAT(captured_layers(*recipe).status().message(), HasSubstr("the draft of b16 reads other layers"));
}

TEST(RunSetup, BadLayersAndAMissingMaskAreNamed) {
  const auto words = shipped("quickstart.yaml", {"levada.target_layer_ids=[1, x]"});
  EXPECT_EQ(captured_layers(*words).status().field(), "levada.target_layer_ids");
  const auto unmasked = shipped("quickstart.yaml", {"model.mask_token_id=null"});
  EXPECT_EQ(captured_layers(*unmasked).status().field(), "model.mask_token_id");
}

TEST(RunSetup, TheRunsLimitsAndTimesAreTheRecipes) {
  const auto recipe = shipped("quickstart.yaml", {"deployment.disaggregated.windowed_fanout.lease_ttl_s=20.5"});
  const fanout::RunConfig run = run_config_of(*recipe);
  EXPECT_EQ(run.run_id, "quickstart");
  EXPECT_EQ(run.max_live_refs, 32);
  EXPECT_EQ(run.times.lease_ttl_us, 20'500'000);
  EXPECT_EQ(run.consumers.size(), 3u);
  EXPECT_EQ(run.consumers[1].lookahead, 16);
  EXPECT_EQ(run.consumers[1].quantum, 2);
}

TEST(RunSetup, ATrainersOptionsAreItsConsumersAndItsFolderItsOwn) {
  const auto recipe = shipped("quickstart.yaml");
  const train::Options options = trainer_options_of(*recipe, recipe->consumers[0]);
  EXPECT_EQ(options.num_anchors, 64);
  EXPECT_EQ(options.seed, 42);
  EXPECT_EQ(options.learning_rate, 0.0006);
  EXPECT_EQ(options.total_steps, 24);
  EXPECT_EQ(options.output_dir, "output/quickstart/b4");
  EXPECT_EQ(options.run_id, "quickstart");
}

}  // namespace
}  // namespace levada::cli
