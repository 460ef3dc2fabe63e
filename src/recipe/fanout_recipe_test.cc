#include "recipe/fanout_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipe/fanout_test.h"

namespace levada::recipe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFanout = "deployment.disaggregated.windowed_fanout.";

// What a recipe with these overrides is refused with; "" if it is accepted.
std::string refusal(const std::vector<std::string>& overrides, const char* yaml = kCpuRecipe) {
  const Status status = read_test_recipe(yaml, overrides).status();
  return status.ok() ? "" : status.field() + ": " + status.message();
}

TEST(FanoutRecipe, SpecForgesSampleLoadsUnchanged) {
  const auto recipe = read_test_recipe(kSpecSample, {kModel});
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  ASSERT_EQ(recipe->consumers.size(), 3u);
  const Consumer& b16 = recipe->consumers[2];
  EXPECT_EQ(b16.consumer_id, "b16");
  EXPECT_EQ(b16.model.draft_block_size, 16);
  EXPECT_EQ(b16.training.num_anchors, 256);
  EXPECT_EQ(b16.training.seed, 44);
  EXPECT_EQ(b16.training.learning_rate, 0.0006);
  EXPECT_EQ(b16.training.batch_size, 2);
  EXPECT_EQ(b16.window_lookahead, 16);
  EXPECT_EQ(b16.window_lookbehind, 2);
  EXPECT_EQ(recipe->steps_of(b16), 24);
  EXPECT_EQ(recipe->store_id(), "specforge-run");
  EXPECT_TRUE(recipe->on_cuda());
  EXPECT_TRUE(recipe->managed);
}

TEST(FanoutRecipe, WithoutAModelTheFieldIsNamed) {
  EXPECT_EQ(refusal({}, kSpecSample), "model.target_model_path: is missing");
}

TEST(FanoutRecipe, UnknownFieldsAreErrorsWithTheNearestNameAtEveryDepth) {
  EXPECT_THAT(refusal({"trainig.seed=1"}), HasSubstr("trainig"));
  EXPECT_THAT(refusal({"training.learning_rat=1"}), HasSubstr("did you mean learning_rate?"));
  EXPECT_THAT(refusal({kFanout + "consumer=1"}), HasSubstr("did you mean consumers?"));
  EXPECT_THAT(refusal({kFanout + "consumers.0.dpace_alfa=1"}), HasSubstr("did you mean dpace_alpha?"));
  EXPECT_THAT(refusal({kFanout + "consumers.0.overrides.model.draft_layers=1"}), HasSubstr("unknown option"));
  EXPECT_THAT(refusal({"deployment.disaggregated.managed_local.capture_servers.0.prt=1"}), HasSubstr("port"));
  EXPECT_THAT(refusal({"deployment.disagregated.backend=mooncake"}), HasSubstr("did you mean disaggregated?"));
}

TEST(FanoutRecipe, AFaultIsPlacedByLineOrByItsOverride) {
  std::string yaml = kCpuRecipe;
  yaml.replace(yaml.find("batch_size: 2"), 13, "batch_size: two");
  EXPECT_THAT(refusal({}, yaml.c_str()), HasSubstr("r.yaml:5: training.batch_size must be a whole number"));
  EXPECT_THAT(refusal({"training.batch_size=two"}), HasSubstr("--set training.batch_size: "));
  EXPECT_THAT(refusal({kFanout + "consumers.0.seed=x"}), HasSubstr("--set " + kFanout + "consumers[0].seed: "));
}

TEST(FanoutRecipe, OverridesReachSectionsItemsAndStructuredValues) {
  const auto recipe = read_test_recipe(kCpuRecipe, {"data.max_prompts=16", kFanout + "consumers.0.num_anchors=7",
                                                    kFanout + "consumers.0.overrides={training: {batch_size: 4}}",
                                                    "levada.target_layer_ids=[1, 8, 14]"});
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  EXPECT_EQ(recipe->data.max_prompts, 16);
  EXPECT_EQ(recipe->consumers[0].training.num_anchors, 7);
  EXPECT_EQ(recipe->consumers[0].quantum(), 4);
  EXPECT_EQ(recipe->training.quantum(), 2);
  EXPECT_THAT(recipe->levada.target_layer_ids, ElementsAre("1", "8", "14"));
  EXPECT_THAT(refusal({"nonsense"}), HasSubstr("--set takes"));
  EXPECT_THAT(refusal({kFanout + "consumers.9.seed=1"}), HasSubstr("there is nothing of the name 9"));
}

TEST(FanoutRecipe, FieldsWithoutEffectLoadAndAreNamed) {
  const auto recipe = read_test_recipe(
      kCpuRecipe, {"tracking.report_to=wandb", "training.eval_interval=5", "model.sglang_attention_backend=fa3"});
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  EXPECT_THAT(recipe->unused,
              ElementsAre("model.sglang_attention_backend", "training.eval_interval", "tracking.report_to"));
}

TEST(FanoutRecipe, FieldsThatWouldChangeTheNumbersAreRefused) {
  EXPECT_THAT(refusal({"model.sglang_quantization=fp8"}), HasSubstr("model.sglang_quantization: must be left out"));
  EXPECT_EQ(refusal({"model.sglang_quantization=null", "model.sglang_ep_size=1"}), "");
  EXPECT_THAT(refusal({"model.sglang_ep_size=2"}), HasSubstr("must be 1"));
  EXPECT_THAT(refusal({"model.torch_dtype=float16"}), HasSubstr("bfloat16 or float32"));
}

// Each rule of the spec, broken alone.
TEST(FanoutRecipe, RulesNameTheFieldToChange) {
  struct Case {
    std::vector<std::string> overrides;
    std::string says;
  };
  const std::string consumer = kFanout + "consumers.0.";
  const std::vector<Case> cases = {
      {{"training.strategy=eagle3"}, "training.strategy: must be dflash"},
      {{"data.train_data_path=x"}, "data: needs exactly one"},
      {{"data.max_prompts=7"}, "data.max_prompts: must be a multiple of batch_size * accumulation_steps"},
      {{"deployment.trainer.nproc_per_node=3"},
       "data.max_prompts: must be a multiple of batch_size * accumulation_steps * nproc_per_node = 6"},
      {{"levada.device=cuda", consumer + "nproc_per_node=2"}, "consumers[0].nproc_per_node: must be 1"},
      {{"data.max_prompts=0"}, "data.max_prompts: must be a multiple"},
      {{"training.total_steps=5"}, "training.total_steps: must be left out or 4"},
      {{"training.resume_from=x"}, "training.resume_from: is each consumer's own"},
      {{"deployment.mode=local_colocated"}, "deployment.mode: must be disaggregated"},
      {{"deployment.disaggregated.backend=shared_dir"}, "backend: must be mooncake"},
      {{"deployment.disaggregated.store_id=other"}, "store_id: must be left out or run_id = demo"},
      {{"deployment.trainer.nnodes=2"}, "deployment.trainer.nnodes: must be 1"},
      {{"model.sglang_context_length=256"}, "must be at least data.max_length + 7 = 263"},
      {{"runtime.in_flight_low_watermark=300"}, "must be at most in_flight_high_watermark"},
      {{"runtime.in_flight_low_watermark=1"}, "at least one optimizer step = 2"},
      {{"runtime.resident_low_watermark_bytes=5"}, "needs a resident_high_watermark_bytes"},
      {{kFanout + "consumer_heartbeat_timeout_s=5"}, "must be more than consumer_heartbeat_interval_s"},
      {{kFanout + "lease_ttl_s=9"}, "must be at least twice"},
      {{kFanout + "read_margin_s=25"}, "must be less than lease_ttl_s"},
      {{consumer + "consumer_id=-x"}, "consumer_id: must be 1 to 128"},
      {{kFanout + "consumers=[]"}, "consumers: needs at least one"},
      {{consumer + "overrides={training: {num_epochs: 2}}"}, "is the same for all consumers"},
      {{consumer + "overrides={training: {batch_size: 64}}"}, "window_lookahead: must be at least 63"},
      {{kFanout + "max_outstanding_per_consumer=1"}, "must be at least 2, the samples of one optimizer step of b4"},
      {{kFanout + "window_lookahead=3", consumer + "max_prefetch=5"}, "must be at most window_lookahead + 1 = 4"},
      {{kFanout + "max_live_refs=7"}, "must be at least max_outstanding_per_consumer = 8"},
      {{kFanout + "max_live_bytes=8388607"}, "must be at least capture_reservation_bytes"},
      {{kFanout + "capture_max_sample_bytes=8388609"}, "must be at least capture_max_sample_bytes"},
      {{kFanout + "max_lead=1"}, "max_lead: must be 0 or at least 2"},
      {{consumer + "resume_from=x"}, "resume_from: is for external servers"},
      {{consumer + "cuda_visible_device=0"}, "is for external servers only"},
      {{"deployment.disaggregated.server_urls=[http://h:1]"}, "exclude each other"},
      {{kFanout + "port=30000"}, "is a capture server's port too"},
      {{"levada.device=cuda"}, "trainer_cuda_visible_devices: needs one entry for each of 1 consumers"},
  };
  for (const Case& c : cases) EXPECT_THAT(refusal(c.overrides), HasSubstr(c.says)) << c.overrides[0];
}

TEST(FanoutRecipe, EveryConsumersNextStepMustFitTogether) {
  // Three consumers of quantum 2 need six places, whatever one of them may hold.
  EXPECT_THAT(refusal({kModel, kFanout + "max_live_refs=5", kFanout + "max_outstanding_per_consumer=2"}, kSpecSample),
              HasSubstr("max_live_refs: must be at least 6, the samples of one optimizer step of every consumer"));
}

TEST(FanoutRecipe, IdsAndDevicesAreUnique) {
  const std::string managed = "deployment.disaggregated.managed_local.";
  EXPECT_THAT(refusal({kModel, kFanout + "consumers.1.consumer_id=b4"}, kSpecSample), HasSubstr("as another's is"));
  EXPECT_THAT(refusal({kModel, managed + "trainer_cuda_visible_devices=[1, 2, 2]"}, kSpecSample),
              HasSubstr("names GPU 2 a second time"));
  EXPECT_THAT(refusal({kModel, managed + "capture_servers.0.cuda_visible_devices=[3]"}, kSpecSample),
              HasSubstr("names GPU 3 a second time"));
  EXPECT_EQ(
      refusal({kModel, "levada.share_gpus=true", managed + "trainer_cuda_visible_devices=[0, 0, 0]"}, kSpecSample), "");
}

TEST(FanoutRecipe, NvlinkNeedsGpus) {
  EXPECT_THAT(refusal({"levada.transport=nvlink"}), HasSubstr("levada.transport: nvlink keeps features on a GPU"));
  EXPECT_EQ(refusal({kModel, "levada.transport=nvlink"}, kSpecSample), "");
}

TEST(FanoutRecipe, RequiredFieldsOfAConsumerAreNamed) {
  EXPECT_THAT(refusal({kFanout + "consumers=[{consumer_id: a}]"}), HasSubstr("consumers.0.seed: is missing"));
}

TEST(FanoutRecipe, SectionsOfTheServerBecomeItsFlags) {
  std::int64_t running = 8;
  std::string host = "127.0.0.1";
  OptionTable server;
  server.begin_room("sched");
  server.add("max_running_requests", &running, "requests");
  server.begin_room("serve");
  server.add("host", &host, "address");
  const auto recipe = read_test_recipe(kCpuRecipe, {"sched.max_running_requests=4"}, server);
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  EXPECT_THAT(recipe->server_flags, ElementsAre(testing::Pair("--max-running-requests", "4")));
}

TEST(FanoutRecipe, HostileTextIsRefusedNotFollowed) {
  EXPECT_NE(refusal({}, "deployment: &a {disaggregated: *a}\n"), "");
  EXPECT_NE(refusal({}, "deployment: {disaggregated: {windowed_fanout: {consumers: {a: 1}}}}\n"), "");
  EXPECT_NE(refusal({}, "model: [1]\n"), "");
  EXPECT_NE(refusal({}, "- 1\n"), "");
}

// A recipe of a flywheel: no prompts of its own.
const std::vector<std::string> kFlywheelSets = {"data={max_length: 256}",
                                                "flywheel={rate: 0.5, promote: {min_gain: 0.1}}"};

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(FlywheelRecipe, TrainsOnWhatItServes) {
  const auto recipe = read_test_recipe(kCpuRecipe, kFlywheelSets);
  ASSERT_TRUE(recipe.ok()) << recipe.status().to_string();
  ASSERT_TRUE(recipe->flywheel);
  EXPECT_EQ(recipe->flywheel->rate, 0.5);
  EXPECT_EQ(recipe->flywheel->min_gain, 0.1);
  EXPECT_TRUE(recipe->managed);
  EXPECT_FALSE(read_test_recipe(kCpuRecipe)->flywheel) << "off unless the recipe says so";
}

TEST(FlywheelRecipe, AContradictionNamesItsField) {
  EXPECT_THAT(refusal(with(kFlywheelSets, {"data.prompts_path=p.jsonl"})), HasSubstr("data: must be left out"));
  EXPECT_THAT(refusal(with(kFlywheelSets, {"flywheel.min_samples=65"})), HasSubstr("flywheel.samples_per_round"));
  EXPECT_THAT(refusal(with(kFlywheelSets, {"flywheel.rat=1"})), HasSubstr("did you mean rate?"));
  EXPECT_THAT(refusal(with(kFlywheelSets, {"flywheel.held_out_share=1.5"})), HasSubstr("held_out_share"));
}

TEST(FlywheelRecipe, ARoundIsARunOnTheServerThatIsThere) {
  const auto round =
      read_test_recipe(kCpuRecipe, with(kFlywheelSets, {"flywheel.round=/f/round-3", "data.max_prompts=6"}));
  ASSERT_TRUE(round.ok()) << round.status().to_string();
  EXPECT_FALSE(round->flywheel);
  EXPECT_FALSE(round->managed);
  EXPECT_THAT(round->disaggregated.server_urls, ElementsAre("http://127.0.0.1:30000"));
  EXPECT_EQ(round->data.prompts(), "/f/round-3/train.jsonl");
  EXPECT_EQ(round->output_dir, "/f/round-3");
  EXPECT_EQ(round->disaggregated.control_dir, "/f/round-3/control");
  EXPECT_EQ(round->store_id(), read_test_recipe(kCpuRecipe, kFlywheelSets)->store_id())
      << "one server writes for all rounds";
  EXPECT_EQ(round->steps_of(round->consumers[0]), 3);
}

}  // namespace
}  // namespace levada::recipe
