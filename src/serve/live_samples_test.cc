// The folder of live samples: what its lines say, what a full folder gives up, who is left out.
#include "serve/live_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "serve/chain_model_test.h"

namespace levada::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LiveSamplesFolder : public ::testing::Test {
 protected:
  LiveSamplesFolder() { fs::remove_all(folder_); }
  ~LiveSamplesFolder() override { fs::remove_all(folder_); }

  std::unique_ptr<LiveSamples> open(std::int64_t bytes = 1 << 20, double rate = 1) {
    return LiveSamples::open({folder_, rate, bytes}, metrics_).value();
  }
  std::vector<fs::path> segments() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder_)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  std::vector<Json> lines() const {
    std::vector<Json> all;
    for (const fs::path& path : segments()) {
      std::ifstream in(path);
      for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
    }
    return all;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("levada-live-" + std::to_string(getpid()));
  Metrics metrics_;
};

TEST_F(LiveSamplesFolder, ALineIsAPromptOfTheProducersForm) {
  open()->offer({5, 6, 7}, {8, 9});
  EXPECT_THAT(lines(), ElementsAre(Json::parse(R"({"task_id":"live-00000001-000001","input_ids":[5,6,7,8,9],
                                                   "loss_mask":[0,0,0,1,1]})")));
}

TEST_F(LiveSamplesFolder, AnotherProcessGoesOnInASegmentOfItsOwn) {
  open()->offer({5}, {6});
  open()->offer({7}, {8});
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_EQ(lines()[1]["task_id"], "live-00000002-000001");
}

// Segments of 4 KiB in a folder of 64: what is kept is the newest, whole, and every other line was counted.
TEST_F(LiveSamplesFolder, TheOldestGoWhenTheFolderIsFull) {
  constexpr int kOffered = 600;
  {
    const auto samples = open(65536);
    for (int i = 0; i < kOffered; ++i) {
      samples->offer(std::vector<core::Token>(60, 1000), {i, i});
      while (i % 100 == 99 && lines().empty()) {
      }
      if (i % 50 == 49) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // within what may wait
    }
  }
  std::uintmax_t bytes = 0;
  for (const fs::path& path : segments()) bytes += fs::file_size(path);
  EXPECT_LE(bytes, 65536u);
  const std::vector<Json> kept = lines();
  EXPECT_GT(kept.size(), 80u);
  EXPECT_EQ(kept.back()["input_ids"].back(), kOffered - 1);
  const std::string text = metrics_.render();
  EXPECT_THAT(text, HasSubstr("levada:live_samples_total 600"));
  EXPECT_THAT(text, HasSubstr("reason=\"older than the folder holds\"} " + std::to_string(kOffered - kept.size())));
}

TEST_F(LiveSamplesFolder, ARateOfNothingKeepsNothing) {
  const auto samples = open(1 << 20, 0);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(samples->wants());
}

TEST_F(LiveSamplesFolder, AServerKeepsConversationsWhoseClientsDontMind) {
  auto samples = open();
  {
    Site site({}, {}, nullptr, samples.get());
    site.model.chain(42, "yes");
    site.start();
    http::Client client = site.client();
    const auto ask = [&](const std::string& more, const std::string& header = "") {
      http::ClientRequest request;
      request.method = "POST";
      request.target = "/generate";
      request.body = R"({"input_ids":[41,42],"sampling_params":{"temperature":0)" + more + "}}";
      if (!header.empty()) request.headers["X-Levada-No-Capture"] = header;
      EXPECT_EQ(client.request(request)->status, 200);
    };
    ask("");
    ask("", "1");
    ask(R"(,"regex":"[a-z]+")");
    ask(R"(,"n":2)");
    ask("", "0");
  }
  samples.reset();
  const std::vector<Json> kept = lines();
  ASSERT_EQ(kept.size(), 2u);
  const Json ids = kept[0]["input_ids"];
  EXPECT_EQ(ids[1], 42);
  EXPECT_EQ(ids.back(), *test_tokenizer().eos()) << "the end is part of what a draft should learn";
  EXPECT_EQ(kept[1]["input_ids"], ids);
}

}  // namespace
}  // namespace levada::serve
