#include "consumer/sample_check.h"

#include <gtest/gtest.h>

#include "consumer/test_samples.h"

namespace levada::consumer {
namespace {

class SampleCheckTest : public testing::Test {
 protected:
  SampleCheckTest() : arena_(*store::Arena::create({.bytes = 1 << 16, .max_objects = 64, .prefault = false}, clock_)) {}

  // What check_lease says of position 1 after `change` was made to its good ref.
  std::string fault(const std::function<void(core::SampleRef&)>& change, std::int64_t generation = 1) {
    core::SampleRef ref = good_;
    change(ref);
    fanout::GrantedLease lease{"t", 1, "run:p1", generation, std::make_shared<const core::SampleRef>(ref), false, 1000};
    return check_lease(lease, card_).message();
  }

  ManualClock clock_;
  std::unique_ptr<store::Arena> arena_;
  const RunCard card_ = small_card(3);
  const core::SampleRef good_ = put_sample(*arena_, card_, 1, 1);
};

TEST_F(SampleCheckTest, V1AGoodRefPasses) {
  EXPECT_EQ(fault([](core::SampleRef&) {}), "");
}

TEST_F(SampleCheckTest, V1EachFieldThatDiffersFromTheContractIsNamed) {
  const auto says = [&](const std::function<void(core::SampleRef&)>& change, const std::string& what) {
    EXPECT_NE(fault(change).find(what), std::string::npos) << fault(change) << " should say " << what;
  };
  says([](auto& ref) { ref.sample_id = "run:p2"; }, "its ref is of run:p2");
  says([](auto& ref) { ref.store_id = "other"; }, "lies in store other");
  says([](auto& ref) { ref.generation = 2; }, "generation 2, granted was 1");
  says([](auto& ref) { ref.aux_layer_ids = {2, 1}; }, "other layers");
  says([](auto& ref) { ref.num_tokens = 0; }, "no tokens");
  says([](auto& ref) { ref.num_tokens = 4; }, "the contract says");
  says([](auto& ref) { ref.tensors.pop_back(); }, "2 objects");
  says([](auto& ref) { ref.tensors[0].name = "hidden"; }, "object hidden instead of hidden_states");
  says([](auto& ref) { ref.tensors[0].dtype = DType::kF32; }, "hidden_states is float32");
  says([](auto& ref) { ref.tensors[0].shape = {2, 3, 8}; }, "[2, 3, 8]");
  says([](auto& ref) { ref.tensors[2].shape = {1, 2}; }, "loss_mask");
}

TEST_F(SampleCheckTest, V3TokensThatAreNotThePlansAreRefused) {
  EXPECT_NE(fault([](auto& ref) { ref.tensors[1].checksum ^= 1; }).find("not the plan's"), std::string::npos);
}

TEST_F(SampleCheckTest, APositionOutsideThePlanIsRefused) {
  fanout::GrantedLease lease{"t", 3, "run:p3", 1, nullptr, false, 1000};
  EXPECT_FALSE(check_lease(lease, card_).ok());
  lease.source_index = 1;
  EXPECT_FALSE(check_lease(lease, card_).ok());  // no ref
}

TEST(FiniteTest, V2InfinitiesAndNaNsAreFound) {
  // bfloat16 bits: 1.0, largest finite, -infinity, NaN.
  EXPECT_TRUE(check_finite(std::vector<std::uint16_t>{0x3F80, 0x7F7F}, 1).ok());
  EXPECT_NE(check_finite(std::vector<std::uint16_t>{0, 0, 0xFF80, 0}, 2).message().find("row 1"), std::string::npos);
  EXPECT_FALSE(check_finite(std::vector<std::uint16_t>{0x7FC1}, 1).ok());
}

}  // namespace
}  // namespace levada::consumer
