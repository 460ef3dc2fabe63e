#include "recipe/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "recipe/fanout_test.h"

namespace levada::recipe {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PlanContext context() {
  return {.binary = "levada",
          .recipe_path = "r.yaml",
          .overrides = {},
          .folder = "/work",
          .capture_token = "capture-word",
          .registry_token = "registry-word",
          .registry_admin_token = "admin-word"};
}

FanoutRecipe recipe_of(const char* yaml, const std::vector<std::string>& overrides = {}) {
  return read_test_recipe(yaml, overrides).value();
}

// Written by hand from the recipe and the spec's G1, not copied from what the code printed.
constexpr const char* kPlanOfCpuRecipe = R"({
  "kind": "managed_supervisor",
  "role": "auto",
  "run_id": "demo",
  "commands": [
    {
      "label": "b4",
      "argv": [
        "levada",
        "train",
        "r.yaml",
        "--consumer-id",
        "b4",
        "--takeover"
      ],
      "env": {
        "SPECFORGE_FANOUT_CONSUMER_ID": "b4",
        "SGLANG_SPEC_CAPTURE_TOKEN": "***",
        "LEVADA_REGISTRY_TOKEN": "***",
        "LEVADA_REGISTRY_ADMIN_TOKEN": null
      },
      "log_path": "out/logs/b4.log"
    },
    {
      "label": "producer",
      "argv": [
        "levada",
        "produce",
        "r.yaml"
      ],
      "env": {
        "SGLANG_SPEC_CAPTURE_TOKEN": "***",
        "LEVADA_REGISTRY_TOKEN": "***",
        "LEVADA_REGISTRY_ADMIN_TOKEN": "***"
      },
      "log_path": "out/logs/producer.log"
    }
  ],
  "worker_env": {},
  "services": [
    {
      "command": {
        "label": "server-0",
        "argv": [
          "levada",
          "serve",
          "--model-path",
          "smollm2",
          "--device",
          "cpu",
          "--dtype",
          "bfloat16",
          "--mem-fraction-static",
          "0.4",
          "--port",
          "30000",
          "--enable-spec-capture",
          "--spec-capture-store-id",
          "demo",
          "--spec-capture-max-sample-bytes",
          "8388608",
          "--arena-bytes",
          "75497472",
          "--store-tcp-url",
          "tcp://127.0.0.1:0",
          "--store-shm-url",
          "shm:///work/out/control/capture-0.sock"
        ],
        "env": {
          "SGLANG_SPEC_CAPTURE_TOKEN": "***"
        }
      },
      "readiness": {
        "kind": "http",
        "url": "http://127.0.0.1:30000/health",
        "timeout_s": 1800.0
      },
      "log_path": "out/logs/server-0.log",
      "phase": 1
    }
  ],
  "managed_root": "out/control",
  "managed_ports": [
    30000,
    0
  ],
  "shutdown_grace_s": 30.0,
  "on_consumer_failure": "continue",
  "max_restarts": 0,
  "notes": []
}
)";

TEST(LaunchPlan, OfASmallRecipeIsThis) {
  EXPECT_EQ(plan_json(make_plan(recipe_of(kCpuRecipe), context())), kPlanOfCpuRecipe);
}

TEST(LaunchPlan, IsAPureFunctionOfRecipeAndContext) {
  const std::string first = plan_json(make_plan(recipe_of(kSpecSample, {kModel}), context()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plan_json(make_plan(recipe_of(kSpecSample, {kModel}), context())), first);
}

TEST(LaunchPlan, ConsumersComeFirstThenTheProducer) {
  const LaunchPlan plan = make_plan(recipe_of(kSpecSample, {kModel}), context());
  std::vector<std::string> labels;
  for (const Command& command : plan.commands) labels.push_back(command.label);
  EXPECT_THAT(labels, ElementsAre("b4", "b8", "b16", "producer"));
}

TEST(LaunchPlan, EachRoleSeesItsOwnGpusAndTheProducerNone) {
  const LaunchPlan plan = make_plan(recipe_of(kSpecSample, {kModel}), context());
  const auto gpus = [](const Command& command) {
    const auto found = std::find_if(command.env.begin(), command.env.end(),
                                    [](const EnvEntry& entry) { return entry.name == "CUDA_VISIBLE_DEVICES"; });
    return found == command.env.end() ? std::string("unset") : found->value.value();
  };
  EXPECT_EQ(gpus(plan.services[0]), "0");
  EXPECT_EQ(gpus(plan.commands[0]), "1");
  EXPECT_EQ(gpus(plan.commands[2]), "3");
  EXPECT_EQ(gpus(plan.commands[3]), "");
}

TEST(LaunchPlan, OverNvlinkTheArenaIsOnTheServersGpuAndItsSocketSaysSo) {
  const auto says = [](const LaunchPlan& plan, const std::string& flag) {
    const std::vector<std::string>& argv = plan.services[0].argv;
    const auto found = std::find(argv.begin(), argv.end(), flag);
    return found == argv.end() ? std::string("unset") : *(found + 1);
  };
  const LaunchPlan host = make_plan(recipe_of(kSpecSample, {kModel}), context());
  EXPECT_EQ(says(host, "--arena-device"), "unset");
  EXPECT_TRUE(says(host, "--store-shm-url").starts_with("shm://"));
  const LaunchPlan device = make_plan(recipe_of(kSpecSample, {kModel, "levada.transport=nvlink"}), context());
  EXPECT_EQ(says(device, "--arena-device"), "cuda");
  EXPECT_TRUE(says(device, "--store-shm-url").starts_with("nvlink://"));
}

TEST(LaunchPlan, TheServersListenForUcxOnlyIfTrainersReadOverIt) {
  const auto listens = [](const std::vector<std::string>& sets) {
    const LaunchPlan plan = make_plan(recipe_of(kSpecSample, sets), context());
    const std::vector<std::string>& argv = plan.services[0].argv;
    return std::find(argv.begin(), argv.end(), "--store-ucx-url") != argv.end();
  };
  EXPECT_TRUE(listens({kModel, "levada.transport=ucx"}));
  EXPECT_FALSE(listens({kModel}));
}

TEST(LaunchPlan, PrintsNoSecretWhereverItHides) {
  PlanContext secretive = context();
  secretive.overrides = {"tracking.wandb_key=wandb-word", "data.max_length=256"};
  FanoutRecipe recipe = recipe_of(kCpuRecipe, secretive.overrides);
  recipe.server_flags = {{"--api-key", "api-word"}, {"--admin-api-key", "boss-word"}};
  recipe.managed_local.capture_servers[0].extra_args = {"--api-key", "extra-word", "--proxy",
                                                        "http://u:url-word@h:1/x"};
  recipe.managed_local.capture_servers[0].env = {"HF_TOKEN=hf-word", "OMP_NUM_THREADS=2"};
  const std::string printed = plan_json(make_plan(recipe, secretive));
  EXPECT_THAT(printed, Not(HasSubstr("-word")));
  EXPECT_THAT(printed, HasSubstr("tracking.wandb_key=***"));
  EXPECT_THAT(printed, HasSubstr("http://***@h:1/x"));
  EXPECT_THAT(printed, HasSubstr("\"OMP_NUM_THREADS\": \"2\""));
  EXPECT_THAT(printed, HasSubstr("data.max_length=256"));
}

TEST(LaunchPlan, TokensTravelInTheEnvironmentOnly) {
  const LaunchPlan plan = make_plan(recipe_of(kCpuRecipe), context());
  for (const Command& command : plan.commands) {
    EXPECT_THAT(command.argv, Not(Contains(HasSubstr("-word")))) << command.label;
  }
}

TEST(LaunchPlan, AConsumerNeverGetsTheProducersToken) {
  PlanContext with_all = context();
  const LaunchPlan plan = make_plan(recipe_of(kCpuRecipe), with_all);
  for (const EnvEntry& entry : plan.commands[0].env) EXPECT_NE(entry.value.value_or(""), "admin-word");
}

TEST(LaunchPlan, ADeepFolderStillGetsASocketThatFits) {
  PlanContext deep = context();
  deep.folder = "/" + std::string(150, 'd');
  const LaunchPlan plan = make_plan(recipe_of(kCpuRecipe), deep);
  EXPECT_LT(plan.sockets[0].size(), 100u);
  deep.folder += "e";
  EXPECT_NE(make_plan(recipe_of(kCpuRecipe), deep).sockets[0], plan.sockets[0]);
}

TEST(LaunchPlan, ServersThatRunAlreadyAreNotStarted) {
  const LaunchPlan plan =
      make_plan(recipe_of(kCpuRecipe,
                          {"deployment.disaggregated={control_dir: c, backend: mooncake, server_urls: [http://h:1], "
                           "windowed_fanout: {max_live_bytes: 1000000000, consumers: [{consumer_id: a, seed: 1, "
                           "loss_type: dflash, dpace_alpha: 0, num_anchors: 1, learning_rate: 1, warmup_ratio: 0}]}}"}),
                context());
  EXPECT_TRUE(plan.services.empty());
  EXPECT_THAT(plan_json(plan), HasSubstr("\"kind\": \"supervisor\""));
}

TEST(LaunchPlan, AFlywheelIsItsServerAndOneRole) {
  const LaunchPlan plan =
      make_plan(recipe_of(kCpuRecipe, {"data={max_length: 256}", "flywheel={rate: 0.5}"}), context());
  ASSERT_EQ(plan.services.size(), 1u);
  ASSERT_EQ(plan.commands.size(), 1u);
  EXPECT_EQ(plan.commands[0].label, "flywheel");
  EXPECT_THAT(plan.commands[0].argv, ElementsAre("levada", "flywheel", "run", "r.yaml"));
  const std::vector<std::string>& server = plan.services[0].argv;
  const auto value_of = [&](const std::string& flag) {
    const auto found = std::find(server.begin(), server.end(), flag);
    return found == server.end() ? "" : *(found + 1);
  };
  EXPECT_EQ(value_of("--live-samples-dir"), "/work/out/flywheel/spool");
  EXPECT_EQ(value_of("--live-samples-rate"), "0.5");
  EXPECT_EQ(value_of("--speculative-draft-room"), "/work/out/flywheel/draft-room.json");
  EXPECT_EQ(plan.ports.size(), 1u) << "each round has a registry of its own";
}

}  // namespace
}  // namespace levada::recipe
