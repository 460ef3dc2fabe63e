#include "up/events.h"

#include <gtest/gtest.h>

namespace levada::up {
namespace {

TEST(Events, WhatIsWrittenIsReadBack) {
  const auto step = parse_event(to_line(StepEvent{"b4", 3, 6, 2.5, 1.25, 0.001}));
  ASSERT_TRUE(step && std::holds_alternative<StepEvent>(*step));
  EXPECT_EQ(std::get<StepEvent>(*step).consumer, "b4");
  EXPECT_EQ(std::get<StepEvent>(*step).cursor, 6);
  EXPECT_EQ(std::get<StepEvent>(*step).loss, 2.5);

  const auto saved = parse_event(to_line(CheckpointEvent{"b4", 24, "out/b4 \"x\"\n"}));
  ASSERT_TRUE(saved && std::holds_alternative<CheckpointEvent>(*saved));
  EXPECT_EQ(std::get<CheckpointEvent>(*saved).path, "out/b4 \"x\"\n");

  SnapshotEvent snapshot;
  snapshot.total_samples = 48;
  snapshot.drained = true;
  snapshot.entries = {{"absent", 48}};
  snapshot.counters = {{"capture_count", 66}};
  snapshot.consumers = {{"b4", "completed", "", 48, 24, 0}};
  snapshot.stuck = {"3/g1: busy"};
  const auto read = parse_event(to_line(snapshot));
  ASSERT_TRUE(read && std::holds_alternative<SnapshotEvent>(*read));
  const auto& got = std::get<SnapshotEvent>(*read);
  EXPECT_TRUE(got.drained);
  EXPECT_EQ(got.counters.at("capture_count"), 66);
  EXPECT_EQ(got.consumers.at(0).state, "completed");
  EXPECT_EQ(got.consumers.at(0).step, 24);
  EXPECT_EQ(got.stuck, snapshot.stuck);
}

TEST(Events, AnEventIsOneLine) { EXPECT_EQ(to_line(StateEvent{"two\nlines"}).find('\n'), std::string::npos); }

TEST(Events, AnyOtherLineIsNoEvent) {
  for (const char* line : {"", "loading the model", "{", "{}", "[1]", "{\"event\":1}", "{\"event\":\"party\"}",
                           "{\"event\":\"step\",\"step\":\"3\"}", "{\"event\":\"step\",\"step\":1.5}",
                           "{\"event\":\"step\",\"loss\":1e999}", "{\"event\":\"snapshot\",\"entries\":[1]}",
                           "{\"event\":\"snapshot\",\"consumers\":[1]}", "{\"event\":\"snapshot\",\"stuck\":[1]}",
                           "{\"event\":\"snapshot\",\"counters\":{\"a\":\"b\"}}"}) {
    EXPECT_FALSE(parse_event(line)) << line;
  }
  EXPECT_FALSE(parse_event("{\"event\":" + std::string(2 << 20, ' ') + "\"state\"}"));
  EXPECT_FALSE(parse_event(std::string(100'000, '{')));
}

}  // namespace
}  // namespace levada::up
