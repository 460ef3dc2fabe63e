// Refs as JSON: what an arena on a device adds, under upstream's two names (the behaviour spec's O3 and I11).
#include "registry/ref_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace levada::registry {
namespace {

using Json = nlohmann::json;

core::SampleRef ref_in_an_arena() {
  core::SampleRef ref;
  ref.store_id = "run";
  ref.sample_id = "run:x";
  ref.generation = 7;
  ref.store_url = "nvlink:///s";
  ref.incarnation = 0xff;
  ref.num_tokens = 3;
  ref.tensors = {{"hidden_states", DType::kBF16, {1, 3, 8}, 1}, {"input_ids", DType::kI64, {1, 3}, 2}};
  ref.arena = core::ArenaPlace{"h:5", "h:6", {1ull << 46, (1ull << 46) + 512}};
  return ref;
}

RefContext run_context() {
  RefContext context;
  context.run_id = "run";
  return context;
}

TEST(RefJson, I11ARefInAnArenaNamesItTwiceAndReadsBackFromEither) {
  const core::SampleRef ref = ref_in_an_arena();
  const Json written = Json::parse(ref_json(ref, run_context()));
  const Json wanted = Json::parse(R"({"session": "h:5", "control": "h:6", "incarnation": "00000000000000ff",
    "addresses": {"hidden_states": 70368744177664, "input_ids": 70368744178176}})");
  EXPECT_EQ(written["metadata"]["mooncake_nvlink"], wanted);
  EXPECT_EQ(written["metadata"]["mooncake_arena"], wanted);
  EXPECT_EQ(written["metadata"]["transport"], "nvlink");
  for (const char* other : {"mooncake_nvlink", "mooncake_arena"}) {
    Json one = written;
    one["metadata"].erase(other);
    const auto read = parse_ref(one.dump());
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(*read, ref);
  }
}

TEST(RefJson, T6ARefOfAnotherStoreNamesNone) {
  core::SampleRef ref = ref_in_an_arena();
  ref.arena.reset();
  ref.store_url = "tcp://h:1";
  const std::string written = ref_json(ref, run_context());
  EXPECT_EQ(written.find("mooncake_"), std::string::npos);
  EXPECT_EQ(*parse_ref(written), ref);
}

TEST(RefJson, WhatIsWrongWithAnArenaIsNamed) {
  const Json good = Json::parse(ref_json(ref_in_an_arena(), run_context()));
  const auto field = [&](const Json& arena) {
    Json bad = good;
    bad["metadata"]["mooncake_nvlink"] = arena;
    return parse_ref(bad.dump()).status().field();
  };
  Json arena = good["metadata"]["mooncake_arena"];
  EXPECT_EQ(field(7), "metadata.mooncake_arena");
  arena["addresses"].erase("input_ids");
  EXPECT_EQ(field(arena), "metadata.mooncake_arena.addresses");
  arena["addresses"]["input_ids"] = -1;
  EXPECT_EQ(field(arena), "metadata.mooncake_arena.addresses");
  arena.erase("control");
  EXPECT_EQ(field(arena), "control");
}

}  // namespace
}  // namespace levada::registry
