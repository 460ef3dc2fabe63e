// A trainer's view of a fan-out run: the samples of a Feed, in the plan's order, acknowledged by its steps.
#include "train/registry_source.h"

#include <gtest/gtest.h>

#include "consumer/test_samples.h"

namespace levada::train {
namespace {

class RegistrySourceTest : public testing::Test {
 protected:
  RegistrySourceTest() : registry_(small_run(), clock_) {
    EXPECT_TRUE(session_.open().ok());
    EXPECT_TRUE(feed_.begin(0, "").ok());
  }

  // Eight samples are two epochs of four prompts.
  static consumer::RunCard small_card() {
    consumer::RunCard card = consumer::small_card(8);
    card.prompts = 4;
    return card;
  }
  fanout::RunConfig small_run() const { return consumer::small_run(card_, {spec_}, 16); }
  void fetch() {
    for (std::int64_t claim = 0; claim < 8; ++claim) {
      consumer::capture_some(registry_, *arena_, card_, next_claim_++);
      while (feed_.fetch_step(0) == consumer::Feed::Fetch::kFetched) {
      }
    }
  }

  ManualClock clock_;
  consumer::ClockPause pause_{clock_};
  const consumer::RunCard card_ = small_card();
  const fanout::ConsumerSpec spec_{"a", 4, 0, 7, 8, 8};
  std::unique_ptr<store::Arena> arena_ =
      *store::Arena::create({.bytes = 1 << 18, .max_objects = 256, .prefault = false}, clock_);
  consumer::TestRegistry registry_;
  consumer::Session session_{consumer::registration(card_, spec_), {}, registry_, clock_, pause_};
  consumer::SampleReader reader_{
      {},
      card_,
      [this](const std::string&) -> Result<std::unique_ptr<store::ObjectStore>> {
        return std::unique_ptr<store::ObjectStore>(std::make_unique<store::LocalStore>(*arena_));
      },
      pause_};
  consumer::Feed feed_{{.idle_us = 5'000'000}, spec_, session_, reader_, clock_, pause_};
  RegistrySource source_{feed_};
  std::int64_t next_claim_ = 1;
};

TEST_F(RegistrySourceTest, StepsAreAcknowledgedAndTheEndIsEmpty) {
  fetch();
  auto first = source_.next(4);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  ASSERT_EQ(first->size(), 4u);
  EXPECT_EQ((*first)[2].sample_id, "run:p2");
  EXPECT_EQ((*first)[2].epoch, 0u);
  ASSERT_TRUE(source_.checkpointed(1, "/checkpoints/run-step1").ok());
  ASSERT_TRUE(source_.stepped(1).ok());
  EXPECT_EQ(registry_.cursor(0), 4);
  EXPECT_EQ(registry_.state().checkpoints.at({"a", 1}).uri, "/checkpoints/run-step1");
  fetch();
  auto second = source_.next(4);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)[0].epoch, 1u);
  ASSERT_TRUE(source_.stepped(2).ok());
  auto end = source_.next(4);
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->empty());
}

TEST_F(RegistrySourceTest, SamplesAreTheStoresOwnMemory) {
  fetch();
  auto samples = source_.next(4);
  ASSERT_TRUE(samples.ok());
  for (std::int64_t p = 0; p < 4; ++p) {
    const Sample& sample = (*samples)[static_cast<std::size_t>(p)];
    const std::string key = core::object_key("store", "run:p" + std::to_string(p), 1, "hidden_states");
    const auto view = arena_->view(key);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(sample.hidden_states.data()), view->bytes().data());
    EXPECT_EQ(std::vector(sample.input_ids.begin(), sample.input_ids.end()), consumer::input_ids(p));
    EXPECT_EQ(sample.loss_mask.size(), sample.input_ids.size());
    EXPECT_EQ(sample.hidden_states.size(), sample.input_ids.size() * 2 * consumer::kHidden);
  }
}

}  // namespace
}  // namespace levada::train
