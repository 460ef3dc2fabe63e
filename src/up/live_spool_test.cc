// What the flywheel takes from a server's live samples.
#include "up/live_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace levada::up {
namespace {

namespace fs = std::filesystem;

std::string line_of(int number, const std::string& ids, const std::string& mask) {
  char name[32];
  std::snprintf(name, sizeof name, "live-00000001-%06d", number);
  return "{\"task_id\":\"" + std::string(name) + "\",\"input_ids\":[" + ids + "],\"loss_mask\":[" + mask + "]}\n";
}

class LiveSpool : public ::testing::Test {
 protected:
  LiveSpool() { fs::create_directories(folder_); }
  ~LiveSpool() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  const fs::path folder_ = fs::temp_directory_path() / ("levada-spool-" + std::to_string(getpid()));
};

TEST_F(LiveSpool, TakesTheNewestOnceAndHoldsOutByContent) {
  std::string first, second;
  for (int i = 0; i < 200; ++i) first += line_of(i, "5,6," + std::to_string(i) + ",9", "0,0,1,1");
  for (int i = 0; i < 200; ++i) second += line_of(200 + i, "5,6," + std::to_string(i) + ",9", "0,0,1,1");  // again
  for (int i = 400; i < 500; ++i) second += line_of(i, "5,6," + std::to_string(i) + ",9", "0,0,1,1");
  write("segment-00000001.jsonl", first);
  write("segment-00000002.jsonl", second);
  const Spool spool = read_spool(folder_, {0.2, 64}, 1000, 1000);
  EXPECT_EQ(spool.train.size() + spool.held_out.size(), 300u);
  EXPECT_GT(spool.held_out.size(), 30u);
  EXPECT_LT(spool.held_out.size(), 90u);
  for (const LiveSample& held : spool.held_out) {
    for (const LiveSample& trained : spool.train) EXPECT_NE(held.input_ids, trained.input_ids);
  }
  const Spool few = read_spool(folder_, {0.2, 64}, 10, 3);
  ASSERT_EQ(few.train.size(), 10u);
  EXPECT_EQ(few.train.back().task_id, spool.train.back().task_id);
  ASSERT_EQ(few.held_out.size(), 3u);
  EXPECT_EQ(few.held_out[0].task_id, spool.held_out[0].task_id) << "the oldest: they stay the same";
  EXPECT_EQ(few.train[0].prompt_tokens, 2);
}

TEST_F(LiveSpool, WhatIsNoWholeSampleIsPassedOver) {
  const std::string good = line_of(1, "5,6,7", "0,1,1");
  write("segment-00000001.jsonl", good + line_of(2, "5,6,8", "0,1") + "{]\n" + line_of(3, "5", "1") +
                                      line_of(4, "5,6", "0,1") + line_of(5, "1,2,3,4,5,6,7,8,9", "0,0,0,0,0,0,0,1,1"));
  write("segment-00000002.jsonl", line_of(6, "7,7,7", "0,1,1").substr(0, 60));  // its writer was killed
  write("notes.txt", good);
  const Spool spool = read_spool(folder_, {0.0, 8}, 100, 100);
  ASSERT_EQ(spool.train.size(), 1u);
  EXPECT_EQ(spool.train[0].line + "\n", good);
  EXPECT_TRUE(read_spool(folder_ / "none", {}, 1, 1).train.empty());
}

}  // namespace
}  // namespace levada::up
