#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace levada {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class OptionTableTest : public testing::Test {
 protected:
  OptionTableTest() {
    table.begin_room("sched");
    table.add("chunked_prefill_size", &chunk, "tokens per step").range(1, 65536);
    table.add("mem_fraction", &fraction, "share of memory").range(0, 1);
    table.add("enable_mixed_chunk", &mixed, "mix prefill and decode");
    table.begin_room("model");
    table.add("model_path", &path, "where the model lies").flag_alias("model");
    table.add("dtype", &dtype, "precision").choices({"auto", "float32", "bfloat16"});
    table.add("context_length", &context, "tokens").range(1, 1e9);
  }

  std::string refusal(std::string_view room, std::string_view name, std::string_view value) {
    const Status status = table.set(room, name, value);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << value;
    return status.message();
  }

  std::int64_t chunk = 512;
  double fraction = 0.9;
  bool mixed = false;
  std::string path = "smollm2", dtype = "auto";
  std::optional<std::int64_t> context;
  OptionTable table;
};

TEST_F(OptionTableTest, values_land_in_their_targets_and_print_as_a_recipe_would_write_them) {
  const struct {
    const char *room, *name, *value;
  } cases[] = {{"sched", "chunked_prefill_size", "65536"},
               {"sched", "mem_fraction", "0.25"},
               {"sched", "enable_mixed_chunk", "true"},
               {"model", "model_path", "/m with blanks"},
               {"model", "dtype", "bfloat16"},
               {"model", "context_length", "8192"}};
  for (const auto& c : cases) {
    ASSERT_TRUE(table.set(c.room, c.name, c.value).ok()) << c.name;
    EXPECT_EQ(table.find(c.room, c.name)->value(), c.value);
  }
  EXPECT_EQ(chunk, 65536);
  EXPECT_EQ(fraction, 0.25);
  EXPECT_TRUE(mixed);
  EXPECT_EQ(path, "/m with blanks");
  EXPECT_EQ(dtype, "bfloat16");
  EXPECT_EQ(context, 8192);
}

TEST_F(OptionTableTest, an_optional_is_null_until_given_and_again_on_request) {
  EXPECT_EQ(table.find("model", "context_length")->value(), "null");
  ASSERT_TRUE(table.set("model", "context_length", "10").ok());
  ASSERT_TRUE(table.set("model", "context_length", "null").ok());
  EXPECT_EQ(context, std::nullopt);
}

TEST_F(OptionTableTest, numbers_are_strict) {
  for (const char* bad :
       {"", " 5", "5 ", "5x", "0x10", "1e3", "+5", "1.5", "--5", "9223372036854775808", "nan", "true"})
    EXPECT_THAT(refusal("sched", "chunked_prefill_size", bad), HasSubstr("a whole number from 1 to 65536")) << bad;
  for (const char* bad : {"", "nan", "inf", "-inf", "1e999", "0.5.5", "0,5", "half", "1.0000001", "-0.1"})
    EXPECT_THAT(refusal("sched", "mem_fraction", bad), HasSubstr("a number from 0 to 1")) << bad;
  EXPECT_EQ(chunk, 512) << "a refused value leaves the old one in place";
  EXPECT_EQ(fraction, 0.9);
}

TEST_F(OptionTableTest, switches_take_true_or_false_only) {
  for (const char* bad : {"", "1", "yes", "True", "on"})
    EXPECT_THAT(refusal("sched", "enable_mixed_chunk", bad), HasSubstr("true or false"));
  EXPECT_TRUE(table.find("sched", "enable_mixed_chunk")->is_switch());
  EXPECT_FALSE(table.find("model", "dtype")->is_switch());
}

// `--api-key "$UNSET"` must not open a server, nor `--chat-template ""` take another template.
TEST_F(OptionTableTest, an_empty_text_is_refused_with_the_remedy) {
  EXPECT_EQ(refusal("model", "model_path", ""),
            "model.model_path (--model-path) must not be empty: leave it out for the default");
  path.clear();
  EXPECT_EQ(refusal("model", "model_path", ""), "model.model_path (--model-path) must not be empty: leave it out");
  EXPECT_THAT(refusal("model", "dtype", ""), HasSubstr("one of auto, float32, bfloat16"));
}

TEST_F(OptionTableTest, a_bad_value_names_the_option_what_was_given_and_what_is_allowed) {
  EXPECT_EQ(refusal("sched", "chunked_prefill_size", "0"),
            "sched.chunked_prefill_size (--chunked-prefill-size) must be a whole number from 1 to 65536, got \"0\"");
  EXPECT_EQ(refusal("model", "dtype", "bfloat"),
            "model.dtype (--dtype) must be one of auto, float32, bfloat16, got \"bfloat\" (did you mean bfloat16?)");
  EXPECT_THAT(refusal("model", "context_length", "-1"), HasSubstr("a whole number from 1 to 1000000000, or null"));
}

TEST_F(OptionTableTest, an_unknown_name_is_answered_with_the_nearest_one) {
  EXPECT_EQ(refusal("sched", "chunked_prefil_size", "1"),
            "unknown option sched.chunked_prefil_size (did you mean chunked_prefill_size?)");
  EXPECT_EQ(refusal("shced", "x", "1"), "unknown section shced (did you mean sched?)");
  EXPECT_EQ(refusal("sched", "dtype", "auto"), "unknown option sched.dtype (did you mean model.dtype?)");
  EXPECT_EQ(table.unknown_flag("--chunked-prefil-size").message(),
            "unknown flag --chunked-prefil-size (did you mean --chunked-prefill-size?)");
  EXPECT_EQ(table.unknown_flag("--modle").message(), "unknown flag --modle (did you mean --model?)");
  EXPECT_THAT(table.unknown_flag("--zzzzzz-qqqq").message(), Not(HasSubstr("did you mean")));
  EXPECT_THAT(table.unknown_flag(std::string(100000, 'x')).message(),
              AllOf(HasSubstr("unknown flag xxx"), testing::SizeIs(testing::Lt(200u))));
}

TEST_F(OptionTableTest, flags_are_the_name_with_dashes_and_the_aliases) {
  EXPECT_EQ(table.find("model", "model_path")->flags(), (std::vector<std::string>{"--model-path", "--model"}));
  EXPECT_EQ(table.find_flag("--model"), table.find("model", "model_path"));
  EXPECT_EQ(table.find_flag("--model_path"), nullptr);
  EXPECT_EQ(table.find_flag("model"), nullptr);
}

TEST_F(OptionTableTest, one_name_belongs_to_one_option) {
  EXPECT_DEATH(table.add("dtype", &path, "again"), "added twice");
  table.begin_room("other");
  EXPECT_DEATH(table.add("dtype", &path, "again"), "same flag");
}

RC_GTEST_PROP(OptionTableProperty, what_an_option_prints_it_also_reads, (std::int64_t whole, double number)) {
  std::int64_t whole_target = whole;
  double number_target = number;
  OptionTable table;
  table.begin_room("r");
  table.add("whole", &whole_target, "");
  table.add("number", &number_target, "");
  RC_ASSERT(table.set("r", "whole", table.find("r", "whole")->value()).ok());
  RC_ASSERT(table.set("r", "number", table.find("r", "number")->value()).ok());
  RC_ASSERT(whole_target == whole);
  RC_ASSERT(number_target == number);
}

RC_GTEST_PROP(OptionTableProperty, any_text_is_accepted_or_refused_with_a_sentence, (const std::string& text)) {
  std::int64_t whole = 1;
  std::optional<std::int64_t> maybe;
  OptionTable table;
  table.begin_room("r");
  table.add("whole", &whole, "").range(1, 100);
  table.add("maybe", &maybe, "");
  for (const char* name : {"whole", "maybe"}) {
    const Status status = table.set("r", name, text);
    RC_ASSERT(status.ok() || status.message().find("must be") != std::string::npos);
  }
  RC_ASSERT(whole >= 1 && whole <= 100);
  RC_ASSERT(!table.set(text, text, text).ok());
}

}  // namespace
}  // namespace levada
