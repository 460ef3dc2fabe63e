// The whole producer with its threads: run_producer() against a server, a store and a registry behind real sockets, with a
// consumer that reads through shared memory.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <future>

#include "base/metrics.h"
#include "consumer/feed.h"
#include "http/server.h"
#include "http/url.h"
#include "producer/producer_run.h"
#include "producer/scripted_server.h"
#include "registry/registry_client.h"
#include "store/open_store.h"
#include "store/store_server.h"
#include "support/temporary_folder.h"

namespace levada::producer {
namespace {

// A ScriptedServer and its arena behind sockets.
class SocketServer {
 public:
  SocketServer(const std::filesystem::path& folder, const Clock& clock)
      : scripted("http://scripted:1", {"store", {1, 2}, 4, DType::kBF16}, clock) {
    store::ServerOptions store_options;
    store_options.shm_url = "shm://" + (folder / "store.sock").string();
    store_options.token = "capture token";
    store_ = *store::StoreServer::start(*scripted.arena(), store_options);
    scripted.real_store_url = store_options.shm_url;
    http::ServerOptions options;
    options.port = 0;
    http_ = *http::Server::listen(options, metrics_);
    http_->route("POST", "/generate", [this](http::Request request, http::Responder responder) {
      if (request.headers["authorization"] != "Bearer capture token") return responder.respond(401, "text/plain", "");
      const auto response = scripted.post("/generate", request.body);
      if (response.ok()) responder.respond(response->status, "application/json", response->body);
    });
    http_->route("GET", "/server_info", [this](http::Request, http::Responder responder) {
      responder.respond(200, "application/json", scripted.get("/server_info")->body);
    });
    io_ = Thread("scripted-io", [this] { http_->run(); });
  }
  ~SocketServer() {
    http_->stop(std::chrono::milliseconds(100));
    io_.join();
    store_.reset();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(http_->port()); }

  ScriptedServer scripted;  // used by the I/O thread while it runs

 private:
  Metrics metrics_;
  std::unique_ptr<store::StoreServer> store_;
  std::unique_ptr<http::Server> http_;
  Thread io_;
};

class ProducerRunTest : public testing::Test {
 protected:
  ProducerRunTest() {
    server_ = std::make_unique<SocketServer>(folder_, clock_);
    std::ofstream prompts(folder_ / "prompts.jsonl");
    for (int p = 0; p < 8; ++p) {
      prompts << "{\"input_ids\": [" << p << ", 5, 6], \"loss_mask\": [0, 1, 1]}\n";
    }
    request_.options.prompts = (folder_ / "prompts.jsonl").string();
    request_.options.control_dir = (folder_ / "control").string();
    request_.options.server_urls = server_->url();
    request_.options.aux_layer_ids = "1,2";
    request_.options.target_model = "scripted";
    request_.run.run_id = "run";
    request_.run.store_id = "store";
    request_.run.consumers = {spec_};
    request_.run.max_live_refs = 8;
    request_.run.max_live_bytes = 1 << 20;
    // A consumer that is gone is waited for no longer than this.
    request_.run.times.lease_ttl_us = 2'000'000;
    request_.run.times.session_ttl_us = 2'000'000;
    request_.run.times.heartbeat_us = 200'000;
    request_.run.removal_tries = 2;
    request_.capture_token = "capture token";
    request_.registry_token = "consumer token";
  }
  ~ProducerRunTest() override { server_.reset(); }

  // A consumer's process from its registration on, up to `body(feed)`.
  void consumer_process(std::int64_t begin_step, const std::function<void(consumer::Feed&)>& body) {
    StoppablePause pause;
    std::optional<consumer::RunCard> card;
    while (!card) card = *consumer::read_run_card(request_.options.control_dir);
    registry::ClientOptions options;
    options.port = http::parse_http_url(card->registry_url)->port;
    options.token = request_.registry_token;
    options.patience = std::chrono::milliseconds(0);
    registry::RegistryClient api(options, {.run_id = "run"}, clock_, [](std::chrono::milliseconds) {});
    const fanout::RegisterRequest who{"run",
                                      "a",
                                      card->contract_digest,
                                      card->source_digest,
                                      "recipe",
                                      spec_.lookbehind,
                                      spec_.lookahead,
                                      spec_.prefetch_depth,
                                      spec_.max_outstanding,
                                      spec_.quantum,
                                      "process " + std::to_string(begin_step),
                                      true};
    consumer::Session session(who, {}, api, clock_, pause);
    ASSERT_TRUE(session.open().ok());
    const auto open = [&](const std::string& url) {
      return store::open_store(url, request_.capture_token, {}, clock_);
    };
    consumer::SampleReader reader({}, *card, open, pause);
    consumer::Feed feed({.read_margin_us = 500'000, .idle_us = 20'000'000, .acquire_wait_ms = 500}, spec_, session,
                        reader, clock_, pause);
    feed.start_heartbeat();
    ASSERT_TRUE(feed.begin(begin_step, begin_step == 0 ? "" : "/checkpoint").ok());
    feed.start_fetching();
    body(feed);
  }
  // The positions it trained on, until the plan's end or `most_steps`.
  std::vector<std::int64_t> consume(std::int64_t begin_step, std::int64_t most_steps) {
    std::vector<std::int64_t> trained;
    consumer_process(begin_step, [&](consumer::Feed& feed) {
      for (std::int64_t step = begin_step + 1; step <= begin_step + most_steps; ++step) {
        auto samples = feed.next(spec_.quantum);
        ASSERT_TRUE(samples.ok()) << samples.status().to_string();
        if (samples->empty()) break;
        for (const consumer::ReadSample* sample : *samples) {
          trained.push_back(sample->position);
          EXPECT_EQ(sample->input_ids[0], sample->position);
        }
        ASSERT_TRUE(feed.checkpointed(step, "/checkpoint").ok());
        ASSERT_TRUE(feed.stepped(step).ok());
      }
      if (feed.cursor() < feed.usable_end()) return;
      EXPECT_TRUE(feed.complete(false).ok());
    });
    return trained;
  }
  // What a consumer is told at last.
  Status told() {
    Status status;
    consumer_process(0, [&](consumer::Feed& feed) {
      for (std::int64_t step = 1; status.ok(); ++step) {
        status = feed.next(spec_.quantum).status();
        if (status.ok()) status = feed.stepped(step);
      }
    });
    return status;
  }

  SystemClock clock_;
  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
  std::unique_ptr<SocketServer> server_;
  const fanout::ConsumerSpec spec_{"a", 2, 0, 5, 4, 4};
  RunRequest request_;
};

TEST_F(ProducerRunTest, T1EverySampleIsCapturedTrainedAndRemoved) {
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  {
    Thread producer("producer", [&] { last = run_producer(request_, {}, nullptr); });
    EXPECT_EQ(consume(0, 100), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  EXPECT_EQ(last->status, fanout::RunStatus::kCompleted);
  EXPECT_EQ(last->entries.at("absent"), 8);
  EXPECT_EQ(last->counters.at("capture_count"), 8);
  EXPECT_EQ(server_->scripted.arena()->stats().used_bytes, 0u);
}

TEST_F(ProducerRunTest, F10AStoppedProducerGoesOnWithTheSamePlan) {
  std::stop_source stop;
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  {
    Thread producer("producer", [&] { last = run_producer(request_, stop.get_token(), nullptr); });
    EXPECT_EQ(consume(0, 2), (std::vector<std::int64_t>{0, 1, 2, 3}));
    stop.request_stop();
  }
  EXPECT_EQ(last.status().code(), StatusCode::kAborted);
  const consumer::RunCard before = **consumer::read_run_card(request_.options.control_dir);
  std::filesystem::remove(std::filesystem::path(request_.options.control_dir) / consumer::kRunCardName);
  {
    Thread producer("producer", [&] { last = run_producer(request_, {}, nullptr); });
    EXPECT_EQ(consume(2, 100), (std::vector<std::int64_t>{4, 5, 6, 7}));
  }
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  const consumer::RunCard after = **consumer::read_run_card(request_.options.control_dir);
  EXPECT_EQ(after.source_digest, before.source_digest);
  EXPECT_EQ(server_->scripted.arena()->stats().used_bytes, 0u);
}

TEST_F(ProducerRunTest, F10AStopCutsACaptureShortAndTheNextStartTakesItUpAtOnce) {
  std::promise<void> asked;
  server_->scripted.fault = [&, told = false]() mutable {
    if (!std::exchange(told, true)) asked.set_value();
    return ServerFault::kReplyLost;  // it is written, and nobody answers
  };
  std::stop_source stop;
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  const std::int64_t began_us = clock_.now_us();
  {
    Thread producer("producer", [&] { last = run_producer(request_, stop.get_token(), nullptr); });
    consumer_process(0, [&](consumer::Feed&) {
      asked.get_future().wait();
      stop.request_stop();
    });
  }
  EXPECT_EQ(last.status().code(), StatusCode::kAborted);
  server_->scripted.fault = nullptr;
  std::filesystem::remove(std::filesystem::path(request_.options.control_dir) / consumer::kRunCardName);
  {
    Thread producer("producer", [&] { last = run_producer(request_, {}, nullptr); });
    EXPECT_EQ(consume(0, 100), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  EXPECT_LT(clock_.now_us() - began_us, 60'000'000) << "neither waited for capture_timeout, 300 s";
  EXPECT_EQ(last->counters.at("capture_count"), 8);
  EXPECT_EQ(server_->scripted.captures(), 8) << "what was written before the stop is answered from the journal";
  EXPECT_EQ(server_->scripted.arena()->stats().used_bytes, 0u);
}

TEST_F(ProducerRunTest, F9ARefusedSampleEndsTheRunAtOnceNamingItAndItsCause) {
  server_->scripted.fault = [] { return ServerFault::kHopelessRow; };
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  const std::int64_t began_us = clock_.now_us();
  {
    Thread producer("producer", [&] { last = run_producer(request_, {}, nullptr); });
    EXPECT_NE(told().message().find("the arena is full"), std::string::npos);
  }
  EXPECT_LT(clock_.now_us() - began_us, 30'000'000);
  EXPECT_EQ(last.status().message().find("run:canonical-prompt-"), 0u) << last.status().to_string();
  EXPECT_NE(last.status().message().find("cannot be captured: the arena is full"), std::string::npos);
  EXPECT_EQ(server_->scripted.arena()->stats().used_bytes, 0u) << "claims of other samples are given back";
}

TEST_F(ProducerRunTest, X4AFailedRunIsToldToItsConsumersAndReturnsItsCause) {
  server_->scripted.fault = [] { return ServerFault::kWrongLayers; };
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  {
    Thread producer("producer", [&] { last = run_producer(request_, {}, nullptr); });
    // Of the position that it needs, or of the run: whichever it meets first.
    EXPECT_NE(told().message().find("aux_layer_ids is [2,1]"), std::string::npos);
  }
  EXPECT_EQ(last.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(last.status().message().find("aux_layer_ids is [2,1], wanted [1,2]"), std::string::npos)
      << last.status().to_string();
  EXPECT_EQ(server_->scripted.arena()->stats().used_bytes, 0u) << "what was written is removed all the same";
}

TEST_F(ProducerRunTest, I32T4BadPromptsAreRefusedBeforeAnyServerHearsOfThem) {
  std::ofstream(folder_ / "prompts.jsonl")
      << "{\"text\": \"a\", \"task_id\": \"x\"}\n{\"text\": \"b\", \"task_id\": \"x\"}\n";
  request_.options.server_urls = "http://127.0.0.1:1";
  const auto last = run_producer(request_, {}, nullptr);
  EXPECT_EQ(last.status().field(), "task_id");
  EXPECT_FALSE(std::filesystem::exists(request_.options.control_dir));
}

TEST_F(ProducerRunTest, F41LimitsThatAreTooSmallAreRefusedWithTheLeastThatWorks) {
  request_.run.max_live_refs = 1;
  const auto last = run_producer(request_, {}, nullptr);
  EXPECT_EQ(last.status().field(), "max_live_refs");
  EXPECT_NE(last.status().message().find("must be at least 2"), std::string::npos) << last.status().message();
}

TEST_F(ProducerRunTest, F45AWrongCaptureTokenEndsTheRun) {
  request_.capture_token = "another token";
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  {
    Thread producer("producer", [&] { last = run_producer(request_, {}, nullptr); });
    EXPECT_NE(told().message().find("refuses the capture token"), std::string::npos);
  }
  EXPECT_EQ(last.status().code(), StatusCode::kUnauthenticated) << last.status().to_string();
}

TEST_F(ProducerRunTest, F42AChangedLimitOnARestartIsRefusedByName) {
  std::stop_source stop;
  Result<fanout::SnapshotReply> last = internal_error("it did not return");
  {
    Thread producer("producer", [&] { last = run_producer(request_, stop.get_token(), nullptr); });
    EXPECT_EQ(consume(0, 1).size(), 2u);
    stop.request_stop();
  }
  request_.run.max_live_refs = 9;
  const auto again = run_producer(request_, {}, nullptr);
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(again.status().to_string().find("max_live_refs"), std::string::npos) << again.status().to_string();
}

TEST(LayerIdsTest, AListOfNumbersEachOnce) {
  EXPECT_EQ(*parse_layer_ids("1,8, 14"), (std::vector<std::int32_t>{1, 8, 14}));
  for (const char* text : {"", "1,", "a", "1;2", "-1", "1,1", "1,99999999999"}) {
    EXPECT_EQ(parse_layer_ids(text).status().field(), "aux_layer_ids") << text;
  }
}

}  // namespace
}  // namespace levada::producer
