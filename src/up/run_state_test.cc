#include "up/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada::up {
namespace {

using testing::HasSubstr;

// The gate run of the spec, ended well: 48 samples, one consumer of 24 steps, 18 recaptures.
RunState good_run() {
  RunState state("demo", 48, {.max_live_refs = 48, .max_live_bytes = 1000});
  state.add_role("server-0", recipe::RoleKind::kService);
  state.add_role("b4", recipe::RoleKind::kConsumer);
  state.add_trainer("b4", 24);
  state.apply("b4", StepEvent{"b4", 1, 2, 6.5, 1.0, 1e-3});
  state.apply("b4", StepEvent{"b4", 24, 48, 4.25, 1.5, 1e-4});
  state.apply("b4", CheckpointEvent{"b4", 24, "out/b4/demo-step24"});
  SnapshotEvent snapshot;
  snapshot.total_samples = 48;
  snapshot.drained = true;
  snapshot.entries = {{"absent", 48}};
  snapshot.counters = {
      {"capture_count", 66}, {"recapture_count", 18}, {"peak_live_refs", 39}, {"peak_live_bytes", 900}};
  snapshot.consumers = {{"b4", "completed", "", 48, 24, 0}};
  state.apply("producer", snapshot);
  state.seconds = 1.5;
  return state;
}

TEST(RunState, TheSummaryHasTheKeysOthersRelyOn) {
  EXPECT_EQ(
      summary_json(good_run()),
      "{\"ok\":true,\"captures\":66,\"recaptures\":18,\"skipped\":0,\"peak_live_refs\":39,\"peak_live_bytes\":900,"
      "\"entries_absent\":48,\"entries_total\":48,\"consumers\":[{\"id\":\"b4\",\"cursor\":48,\"step\":24,"
      "\"checkpoint\":\"out/b4/demo-step24\",\"loss_first\":6.5,\"loss_last\":4.25,\"accept_len\":1.5}],"
      "\"seconds\":1.5}\n");
}

TEST(RunState, WhatIsNotKnownIsNull) {
  RunState state("demo", 4, {});
  state.add_trainer("b4", 2);
  EXPECT_THAT(summary_json(state), HasSubstr("\"checkpoint\":null,\"loss_first\":null"));
  EXPECT_FALSE(state.ok());
}

// Each promise of the gate, broken alone.
TEST(RunState, OkNeedsEveryPromise) {
  ASSERT_TRUE(good_run().ok());
  const auto with_snapshot = [](auto change) {
    RunState state = good_run();
    SnapshotEvent snapshot;
    snapshot.total_samples = 48;
    snapshot.drained = true;
    snapshot.entries = {{"absent", 48}};
    snapshot.counters = {{"peak_live_refs", 48}, {"peak_live_bytes", 1000}};
    snapshot.consumers = {{"b4", "completed", "", 48, 24, 0}};
    change(snapshot);
    state.apply("producer", snapshot);
    return state.ok();
  };
  EXPECT_TRUE(with_snapshot([](SnapshotEvent&) {}));
  EXPECT_FALSE(with_snapshot([](SnapshotEvent& s) { s.drained = false; }));
  EXPECT_FALSE(with_snapshot([](SnapshotEvent& s) { s.entries = {{"absent", 47}, {"evicting", 1}}; }));
  EXPECT_FALSE(with_snapshot([](SnapshotEvent& s) { s.counters["peak_live_refs"] = 49; }));
  EXPECT_FALSE(with_snapshot([](SnapshotEvent& s) { s.counters["peak_live_bytes"] = 1001; }));
  EXPECT_FALSE(with_snapshot([](SnapshotEvent& s) { s.consumers[0].state = "suspended"; }));
  EXPECT_FALSE(with_snapshot([](SnapshotEvent& s) { s.stuck = {"1/g1: busy"}; }));
  RunState no_checkpoint = good_run();
  no_checkpoint.apply("b4", CheckpointEvent{"b4", 23, "x"});
  EXPECT_FALSE(no_checkpoint.ok());
  RunState left = good_run();
  left.leftovers = {"b4 (killed after 30 s)"};
  EXPECT_FALSE(left.ok());
  RunState failed = good_run();
  failed.failure = "x";
  EXPECT_FALSE(failed.ok());
}

TEST(RunState, TheTableSaysWhatTheGateAsks) {
  const std::string table = gate_table(good_run());
  EXPECT_THAT(table, HasSubstr("66 = 48 + 18 recaptures"));
  EXPECT_THAT(table, HasSubstr("39 of 48 refs, 900 B of 1.0 KB"));
  EXPECT_THAT(table, HasSubstr("48 of 48"));
  EXPECT_THAT(table, HasSubstr("24/24"));
  EXPECT_THAT(table, HasSubstr("out/b4/demo-step24"));
  EXPECT_THAT(table, HasSubstr("none"));
  EXPECT_THAT(table, HasSubstr("ok"));
}

TEST(RunState, TheTableSaysHowLongCapturesTookAndWhatHeldThemBack) {
  EXPECT_THAT(gate_table(good_run()), testing::Not(HasSubstr("captured in")));
  RunState state = good_run();
  SnapshotEvent snapshot;
  snapshot.counters = {{"capture_latency_count", 4},        {"capture_latency_ms_sum", 2000},
                       {"capture_latency_ms_max", 900},     {"reclaim_latency_count", 1},
                       {"reclaim_latency_ms_sum", 20},      {"reclaim_latency_ms_max", 20},
                       {"admission_blocked_refs_ms", 1500}, {"skipped_samples", 2}};
  state.apply("producer", snapshot);
  const std::string table = gate_table(state);
  EXPECT_THAT(table, HasSubstr("0.50 s on average, at most 0.90 s"));
  EXPECT_THAT(table, HasSubstr("0.02 s on average"));
  EXPECT_THAT(table, HasSubstr("1.50 s by max_live_refs, 0.00 s by max_live_bytes"));
  EXPECT_THAT(table, HasSubstr("2 samples that could not be captured"));
}

TEST(RunState, AFlywheelsTableSaysHowItsRolesStandAndWhatItDoes) {
  RunState state("wheel", 0, {});
  state.add_role("server-0", recipe::RoleKind::kService);
  state.add_role("flywheel", recipe::RoleKind::kProducer);
  state.set_role("server-0", "ready");
  state.count_restart("server-0");
  state.apply("flywheel", StateEvent{"round 3: training on 320 samples"});
  const std::string table = gate_table(state);
  EXPECT_THAT(table, HasSubstr("flywheel wheel"));
  EXPECT_THAT(table, HasSubstr("ready, started again 1 times"));
  EXPECT_THAT(table, HasSubstr("round 3: training on 320 samples"));
  EXPECT_THAT(table, testing::Not(HasSubstr("captures")));
}

TEST(RunState, TheStatusFileIsReadBack) {
  RunState state = good_run();
  state.phase = "training";
  const auto file = parse_status(status_json(state, 77), "up.json");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->pid, 77);
  EXPECT_EQ(file->phase, "training");
  EXPECT_EQ(file->text, gate_table(state));
  for (const char* damaged :
       {"", "{", "[]", "{\"pid\":1}", "{\"pid\":\"1\",\"phase\":\"x\",\"table\":\"\",\"summary\":{}}"}) {
    EXPECT_EQ(parse_status(damaged, "up.json").status().code(), StatusCode::kDataLoss) << damaged;
  }
}

TEST(RunState, EventsOfStrangersChangeNothing) {
  RunState state = good_run();
  state.apply("x", StepEvent{"x", 9, 9, 9, 9, 9});
  state.apply("x", CheckpointEvent{"x", 9, "x"});
  EXPECT_EQ(summary_json(state), summary_json(good_run()));
}

}  // namespace
}  // namespace levada::up
