#include "train/tcp_collective.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "base/fd.h"
#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;

std::uint16_t free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), size), 0);
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &size), 0);
  return ntohs(where.sin_port);
}

// Runs body(rank, options) for every rank on a thread of its own.
void each_rank(std::int64_t world, const std::function<void(std::int64_t, TcpCollectiveOptions)>& body) {
  TcpCollectiveOptions options;
  options.port = free_port();
  options.world = world;
  options.timeout_seconds = 20;
  options.token = "secret";
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    options.rank = rank;
    threads.emplace_back([&body, rank, options] { body(rank, options); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpCollective, EveryRankGetsTheSameSumsOfAnyLength) {
  std::vector<std::vector<float>> results(3);
  each_rank(3, [&](std::int64_t rank, const TcpCollectiveOptions& options) {
    auto collective = open_tcp_collective(options);
    ASSERT_TRUE(collective.ok()) << collective.status().to_string();
    std::vector<float> values(600001);  // more than two pieces
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i % 7) + 0.1f * static_cast<float>(rank);
    ASSERT_TRUE((*collective)->all_reduce_sum(std::span<float>(values)).ok());
    std::vector<double> one{static_cast<double>(rank)}, none;
    ASSERT_TRUE((*collective)->all_reduce_sum(std::span<double>(none)).ok());
    ASSERT_TRUE((*collective)->all_reduce_sum(std::span<double>(one)).ok());
    EXPECT_EQ(one[0], 3);
    results[static_cast<std::size_t>(rank)] = values;
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NEAR(results[0][600000], 3 * (600000 % 7) + 0.3f, 1e-5);
}

TEST(TcpCollective, APeerThatIsGoneIsUnavailableNotAHang) {
  each_rank(2, [&](std::int64_t rank, const TcpCollectiveOptions& options) {
    auto collective = open_tcp_collective(options);
    ASSERT_TRUE(collective.ok());
    if (rank == 1) return;  // leaves
    std::vector<float> values(10);
    EXPECT_EQ((*collective)->all_reduce_sum(std::span<float>(values)).code(), StatusCode::kUnavailable);
    EXPECT_EQ((*collective)->all_reduce_sum(std::span<float>(values)).code(), StatusCode::kUnavailable) << "for good";
  });
}

TEST(TcpCollective, RanksThatMakeDifferentCallsAreTold) {
  each_rank(2, [&](std::int64_t rank, const TcpCollectiveOptions& options) {
    auto collective = open_tcp_collective(options);
    ASSERT_TRUE(collective.ok());
    std::vector<float> values(rank == 0 ? 10 : 11);
    EXPECT_FALSE((*collective)->all_reduce_sum(std::span<float>(values)).ok());
  });
}

TEST(TcpCollective, AWrongTokenIsTurnedAwayAndTheRightOneStillCounts) {
  each_rank(2, [&](std::int64_t rank, TcpCollectiveOptions options) {
    if (rank == 1) {
      TcpCollectiveOptions wrong = options;
      wrong.token = "guess";
      EXPECT_EQ(open_tcp_collective(wrong).status().code(), StatusCode::kUnauthenticated);
    }
    EXPECT_TRUE(open_tcp_collective(options).ok());
  });
}

TEST(TcpCollective, MissingRanksAndBadOptionsAreStatuses) {
  TcpCollectiveOptions options;
  options.port = free_port();
  options.world = 2;
  options.timeout_seconds = 0.2;
  EXPECT_EQ(open_tcp_collective(options).status().code(), StatusCode::kUnavailable);
  options.rank = 1;
  EXPECT_EQ(open_tcp_collective(options).status().code(), StatusCode::kUnavailable);
  options.rank = 2;
  EXPECT_EQ(open_tcp_collective(options).status().field(), "rank");
  options.host = "nowhere";
  options.rank = 0;
  EXPECT_EQ(open_tcp_collective(options).status().field(), "host");
  options = {};
  EXPECT_EQ(std::move(open_tcp_collective(options)).value()->world(), 1) << "alone, without a port";
}

// Two processes' worth of trainers: weights stay bitwise equal on both ranks, and close to one trainer with all samples.
TEST(TcpCollective, DataParallelTrainersStayEqual) {
  const DraftConfig config = small_config();
  const Samples samples(config, 4);
  Options half = small_options();
  half.accumulation_steps = 1;
  const TemporaryFolder out;
  half.output_dir = out.path();
  std::vector<std::string> weights(2);
  each_rank(2, [&](std::int64_t rank, const TcpCollectiveOptions& options) {
    auto collective = std::move(open_tcp_collective(options)).value();
    auto trainer = std::move(DflashTrainer::create(half, config, small_tables(config), collective.get())).value();
    for (int step = 0; step < 3; ++step) must_step(*trainer, samples.some(2 * static_cast<std::size_t>(rank), 2));
    weights[static_cast<std::size_t>(rank)] = weights_of(*trainer);
    const auto saved = trainer->save();  // rank 0 writes, both know
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    EXPECT_TRUE(std::filesystem::exists(*saved / "state.json"));
  });
  EXPECT_EQ(weights[0], weights[1]);
  auto whole = make_trainer(small_options(), config);
  for (int step = 0; step < 3; ++step) must_step(*whole, samples.some(0, 4));
  EXPECT_LT(difference(weights[0], weights_of(*whole)), 2e-5);
}

}  // namespace
}  // namespace levada::train
