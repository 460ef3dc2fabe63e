#include "recipe/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace levada::recipe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Rooms {
  std::int64_t chunked_prefill_size = 512;
  std::string model_path = "smollm2";
  bool disable_radix_cache = false;
  OptionTable table;

  Rooms() {
    table.begin_room("engine");
    table.add("model_path", &model_path, "the model").flag_alias("model");
    table.begin_room("sched");
    table.add("chunked_prefill_size", &chunked_prefill_size, "tokens per step").range(-1, 1 << 20);
    table.add("disable_radix_cache", &disable_radix_cache, "no prefix reuse");
  }

  Result<CommandLine> parse(std::vector<const char*> words) { return parse_command_line(words, table); }
};

TEST(CommandLine, TakesBothSpellingsOfAValue) {
  Rooms rooms;
  ASSERT_TRUE(rooms.parse({"--chunked-prefill-size", "64", "--model=qwen"}).ok());
  EXPECT_EQ(rooms.chunked_prefill_size, 64);
  EXPECT_EQ(rooms.model_path, "qwen");
}

TEST(CommandLine, NegativeNumbersAreValues) {
  Rooms rooms;
  ASSERT_TRUE(rooms.parse({"--chunked-prefill-size", "-1"}).ok());
  EXPECT_EQ(rooms.chunked_prefill_size, -1);
}

TEST(CommandLine, AnOptionMayTakeSeveralWords) {
  std::string layers;
  bool quiet = false;
  OptionTable table;
  table.begin_room("capture");
  table.add("layers", &layers, "numbers").several_words();
  table.add("quiet", &quiet, "say less");
  const auto parse = [&](std::vector<const char*> words) { return parse_command_line(words, table); };
  ASSERT_TRUE(parse({"--layers", "1", "9", "-17", "--quiet"}).ok());
  EXPECT_EQ(layers, "1,9,-17");
  EXPECT_TRUE(quiet);
  ASSERT_TRUE(parse({"--layers=2 3"}).ok());
  EXPECT_EQ(layers, "2 3");
  ASSERT_TRUE(parse({"--layers", "4,5"}).ok());
  EXPECT_EQ(layers, "4,5");
  EXPECT_THAT(parse({"--layers", "--quiet"}).status().message(), HasSubstr("--layers needs a value"));
}

TEST(CommandLine, UnknownFlagsAreCollectedWithTheirWordsForWhoAsks) {
  Rooms rooms;
  const std::vector<const char*> words = {"--theirs", "1", "-2", "--chunked-prefill-size", "64", "--bare", "--x=y"};
  EXPECT_FALSE(parse_command_line(words, rooms.table).ok());
  const auto line = parse_command_line(words, rooms.table, Overrides::kApply, UnknownFlags::kCollect);
  ASSERT_TRUE(line.ok()) << line.status().to_string();
  EXPECT_EQ(rooms.chunked_prefill_size, 64);
  ASSERT_EQ(line->unknown.size(), 3u);
  EXPECT_EQ(line->unknown[0].name + "=" + line->unknown[0].value, "--theirs=1 -2");
  EXPECT_EQ(line->unknown[1].name + "=" + line->unknown[1].value, "--bare=");
  EXPECT_EQ(line->unknown[2].name + "=" + line->unknown[2].value, "--x=y");
}

TEST(CommandLine, ASwitchNeedsNoValueAndCanBeTurnedOff) {
  Rooms rooms;
  ASSERT_TRUE(rooms.parse({"--disable-radix-cache"}).ok());
  EXPECT_TRUE(rooms.disable_radix_cache);
  ASSERT_TRUE(rooms.parse({"--disable-radix-cache=false"}).ok());
  EXPECT_FALSE(rooms.disable_radix_cache);
}

TEST(CommandLine, SetReachesEveryRoomAndTheLastWordWins) {
  Rooms rooms;
  ASSERT_TRUE(rooms.parse({"--set", "sched.chunked_prefill_size=8", "--chunked-prefill-size", "16"}).ok());
  EXPECT_EQ(rooms.chunked_prefill_size, 16);
}

TEST(CommandLine, FlagsOverrideTheRecipeWhereverItStands) {
  const std::string file = testing::TempDir() + "/levada_command_line_test.yaml";
  std::ofstream(file) << "sched:\n  chunked_prefill_size: 8\nengine:\n  model_path: from_recipe\n";
  Rooms rooms;
  ASSERT_TRUE(rooms.parse({"--chunked-prefill-size", "32", "--recipe", file.c_str()}).ok());
  EXPECT_EQ(rooms.chunked_prefill_size, 32);
  EXPECT_EQ(rooms.model_path, "from_recipe");
}

TEST(CommandLine, SetsAreCollectedForARecipeThatIsReadLater) {
  Rooms rooms;
  const auto line = parse_command_line(std::vector<const char*>{"r.yaml", "--set", "a.b.c=1", "--set=d=[x, y]"},
                                       rooms.table, Overrides::kCollect);
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(line->overrides, ElementsAre("a.b.c=1", "d=[x, y]"));
  EXPECT_THAT(line->positionals, ElementsAre("r.yaml"));
}

TEST(CommandLine, UnknownFlagsNameTheNearestOne) {
  Rooms rooms;
  EXPECT_THAT(rooms.parse({"--chunked-prefil-size", "3"}).status().message(), HasSubstr("--chunked-prefill-size"));
  EXPECT_FALSE(rooms.parse({"-p", "3"}).ok());
}

TEST(CommandLine, MissingAndBadValuesNameTheFlag) {
  Rooms rooms;
  EXPECT_THAT(rooms.parse({"--model"}).status().message(), HasSubstr("--model needs a value"));
  EXPECT_THAT(rooms.parse({"--chunked-prefill-size", "many"}).status().message(), HasSubstr("chunked_prefill_size"));
  EXPECT_THAT(rooms.parse({"--set", "nonsense"}).status().message(), HasSubstr("room.name=value"));
  EXPECT_FALSE(rooms.parse({"--recipe", "/nonexistent.yaml"}).ok());
}

TEST(CommandLine, WordsWithoutAFlagAreKeptInOrder) {
  Rooms rooms;
  EXPECT_THAT(rooms.parse({"radix", "--model", "x", "sched"})->positionals, ElementsAre("radix", "sched"));
}

TEST(CommandLine, HelpListsEveryFlagWithItsDefault) {
  Rooms rooms;
  EXPECT_TRUE(rooms.parse({"--help"})->help);
  EXPECT_THAT(print_help(rooms.table), HasSubstr("--chunked-prefill-size"));
  EXPECT_THAT(print_help(rooms.table), HasSubstr("default 512"));
}

}  // namespace
}  // namespace levada::recipe
