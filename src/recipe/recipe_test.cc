#include "recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace levada::recipe {
namespace {

using testing::HasSubstr;

struct Rooms {
  std::int64_t page_size = 16;
  std::string device = "cpu";
  bool disable_radix_cache = false;
  std::optional<std::int64_t> max_total_tokens;
  OptionTable table;

  Rooms() {
    table.begin_room("engine");
    table.add("page_size", &page_size, "tokens per page").range(1, 1024);
    table.add("device", &device, "where").choices({"cpu", "cuda"});
    table.add("max_total_tokens", &max_total_tokens, "room of the pool").range(1, 1 << 20);
    table.begin_room("sched");
    table.add("disable_radix_cache", &disable_radix_cache, "no prefix reuse");
  }
};

TEST(Recipe, SetsWhatItNamesAndLeavesTheRest) {
  Rooms rooms;
  ASSERT_TRUE(
      apply_recipe("engine:\n  page_size: 64\nsched:\n  disable_radix_cache: true\n", "r.yaml", rooms.table).ok());
  EXPECT_EQ(rooms.page_size, 64);
  EXPECT_EQ(rooms.device, "cpu");
  EXPECT_TRUE(rooms.disable_radix_cache);
}

TEST(Recipe, EmptyRecipeAndEmptySectionChangeNothing) {
  Rooms rooms;
  EXPECT_TRUE(apply_recipe("", "r.yaml", rooms.table).ok());
  EXPECT_TRUE(apply_recipe("engine:\n", "r.yaml", rooms.table).ok());
  EXPECT_EQ(rooms.page_size, 16);
}

TEST(Recipe, NullUnsetsWhatMayBeUnset) {
  for (const char* null : {"null", "~", "", "\"null\""}) {
    Rooms rooms;
    rooms.max_total_tokens = 4096;
    ASSERT_TRUE(apply_recipe("engine:\n  max_total_tokens: " + std::string(null) + "\n", "r.yaml", rooms.table).ok());
    EXPECT_EQ(rooms.max_total_tokens, std::nullopt) << "written as '" << null << "'";
  }
}

TEST(Recipe, NullIsRefusedWhereAValueIsNeeded) {
  Rooms rooms;
  const auto message = [&](const char* yaml) { return apply_recipe(yaml, "r.yaml", rooms.table).message(); };
  EXPECT_THAT(message("engine:\n  device: null\n"), HasSubstr("r.yaml:2: engine.device must be one of cpu, cuda"));
  EXPECT_THAT(message("engine:\n  page_size:\n"), HasSubstr("got null"));
  EXPECT_THAT(message("engine:\n  model: ~\n"), HasSubstr("unknown option engine.model"));
  EXPECT_EQ(rooms.device, "cpu");
}

// Each fault is answered with file, line and what would be right.
TEST(Recipe, FaultsNameFileLineAndRemedy) {
  Rooms rooms;
  const auto message = [&](const char* yaml) { return apply_recipe(yaml, "r.yaml", rooms.table).message(); };
  EXPECT_THAT(message("engine:\n  page_sise: 64\n"), HasSubstr("r.yaml:2: "));
  EXPECT_THAT(message("engine:\n  page_sise: 64\n"), HasSubstr("page_size"));
  EXPECT_THAT(message("engine:\n  device: cpu\n  page_size: 4096\n"), HasSubstr("r.yaml:3: "));
  EXPECT_THAT(message("engine:\n  page_size: 4096\n"), HasSubstr("1024"));
  EXPECT_THAT(message("engin:\n  page_size: 64\n"), HasSubstr("engine"));
  EXPECT_THAT(message("engine:\n  page_size: [1, 2]\n"), HasSubstr("engine.page_size must be a single value"));
  EXPECT_THAT(message("- engine\n"), HasSubstr("must be a map"));
  EXPECT_THAT(message("engine: 3\n"), HasSubstr("section 'engine' must be a map"));
  EXPECT_THAT(message("engine: {page_size: 1, page_size: 2}\n"), HasSubstr("appears twice"));
  EXPECT_THAT(message("engine: {page_size: \n"), HasSubstr("not valid YAML"));
}

TEST(Recipe, HostileInputIsRefusedNotFollowed) {
  Rooms rooms;
  EXPECT_FALSE(apply_recipe(std::string(100'000, '['), "deep.yaml", rooms.table).ok());
  EXPECT_FALSE(apply_recipe(std::string(kMaxRecipeBytes + 1, ' '), "long.yaml", rooms.table).ok());
  EXPECT_FALSE(apply_recipe("a: &a [*a, *a]\n", "self.yaml", rooms.table).ok());
  EXPECT_FALSE(apply_recipe(std::string("engine:\n  page_size: \x00\xff\n", 24), "bytes.yaml", rooms.table).ok());
}

TEST(Recipe, MissingFileIsNotFound) {
  Rooms rooms;
  EXPECT_EQ(load_recipe("/nonexistent/r.yaml", rooms.table).code(), StatusCode::kNotFound);
  EXPECT_FALSE(load_recipe("/", rooms.table).ok());
}

TEST(Recipe, AnEmptyTextIsNoValue) {
  std::string key = "k";
  OptionTable table;
  table.begin_room("serve");
  table.add("api_key", &key, "a key");
  EXPECT_THAT(apply_recipe("serve:\n  api_key: ''\n", "r.yaml", table).message(),
              HasSubstr("r.yaml:2: serve.api_key (--api-key) must not be empty"));
  EXPECT_EQ(key, "k");
}

}  // namespace
}  // namespace levada::recipe
