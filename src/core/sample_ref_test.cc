#include "core/sample_ref.h"

#include <gtest/gtest.h>

namespace levada::core {
namespace {

TEST(ObjectKey, is_spec_forges_key_for_ordinary_ids) {
  EXPECT_EQ(object_key("run-1", "run-1:task_7.a", 3, "hidden_states"), "run-1/run-1:task_7.a/g3/hidden_states");
}

TEST(ObjectKey, encodes_every_byte_outside_the_plain_set_so_that_components_cannot_collide) {
  EXPECT_EQ(object_key("a/b", "c", 1, "d"), "a%2Fb/c/g1/d");
  EXPECT_EQ(object_key("a", "b%2Fc", 1, "d"), "a/b%252Fc/g1/d");
  EXPECT_EQ(object_key("a", "\xC3\xA4 ", 1, "d"), "a/%C3%A4%20/g1/d");
}

TEST(SampleRef, counts_the_bytes_of_all_its_tensors) {
  SampleRef ref;
  ref.tensors = {{.name = "hidden_states", .dtype = DType::kBF16, .shape = {1, 10, 8}},
                 {.name = "input_ids", .dtype = DType::kI64, .shape = {1, 10}}};
  EXPECT_EQ(ref.bytes(), 160u + 80u);
}

}  // namespace
}  // namespace levada::core
