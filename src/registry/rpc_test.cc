// The registry over HTTP: the same operations, tokens and roles, hostile bodies, lost replies.
#include <gtest/gtest.h>

#include "base/metrics.h"
#include "fanout/sim/driver.h"
#include "registry/memory_storage.h"
#include "registry/message_json.h"
#include "registry/registry_client.h"
#include "registry/registry_server.h"

namespace levada::registry {
namespace {

using fanout::ErrorCode;
using fanout::Role;

class RpcTest : public testing::Test {
 protected:
  void SetUp() override {
    auto config = std::make_shared<fanout::RunConfig>(
        fanout::small_config({fanout::spec(1, 3, 2, 3), fanout::spec(1, 3, 2, 3)}, 6, 6));
    auto registry = Registry::open(config, std::make_unique<MemoryStorageHandle>(storage_), clock_);
    ASSERT_TRUE(registry.ok());
    registry_ = std::move(*registry);
    http::ServerOptions options;
    options.port = 0;
    auto server = http::Server::listen(options, metrics_);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
    ASSERT_TRUE(mount_registry(*server_, *registry_, {"consumer secret", "producer secret"}, context_).ok());
    io_ = Thread("io", [this] { server_->run(); });
  }
  void TearDown() override {
    if (registry_) registry_->stop();
    if (server_) server_->stop(std::chrono::milliseconds(100));
    io_.join();
  }
  std::unique_ptr<RegistryClient> client(const std::string& token) {
    ClientOptions options;
    options.port = server_->port();
    options.token = token;
    options.patience = std::chrono::milliseconds(0);
    return std::make_unique<RegistryClient>(options, context_, clock_, [](std::chrono::milliseconds) {});
  }
  http::ClientResponse post(const std::string& operation, const std::string& body, const std::string& authorization) {
    http::Client client("127.0.0.1", server_->port());
    http::ClientRequest request;
    request.method = "POST";
    request.target = "/v1/fanout/" + operation;
    request.body = body;
    if (!authorization.empty()) request.headers["Authorization"] = authorization;
    auto response = client.request(request);
    EXPECT_TRUE(response.ok()) << response.status().to_string();
    return response.ok() ? *response : http::ClientResponse();
  }
  // What the registry itself says of its state.
  fanout::Outcome<fanout::Reply> registry_answer() {
    LocalApi api(*registry_);
    auto snapshot = api.call(fanout::SnapshotRequest{});
    return fanout::Reply(*snapshot);
  }
  fanout::RegisterRequest registration(const std::string& id) const {
    return {"run", id, "contract", "plan", "recipe", 0, 3, 2, 3, 1, "nonce", false};
  }

  RefContext context_{"run", "dflash", "target", "", "tokenizer", "hidden_states"};
  SystemClock clock_;
  MemoryStorage storage_;
  Metrics metrics_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<http::Server> server_;
  Thread io_;
};

TEST_F(RpcTest, AWholeSampleGoesOverTheWire) {
  auto consumer = client("consumer secret");
  auto producer = client("producer secret");
  const auto session = consumer->call(registration("a"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  const fanout::SessionKey key{session->session_id, session->session_epoch};

  auto claimed = producer->call(fanout::ClaimRequest{"w", "http://server", 1, 1, 1000});
  ASSERT_TRUE(claimed.ok()) << claimed.error().message;
  ASSERT_EQ(claimed->requests.size(), 1u);
  const auto& order = claimed->requests[0];
  EXPECT_EQ(order.source_sample_id, "run:p0");
  const auto ref = fanout::ref_for(order, 0xfedcba9876543210);
  ASSERT_TRUE(producer
                  ->call(fanout::MarkCommittingRequest{order.source_index, order.generation, order.nonce, ref,
                                                       order.reserved_bytes})
                  .ok());
  ASSERT_TRUE(producer->call(fanout::CompleteCaptureRequest{0, order.generation, order.nonce}).ok());

  const auto got = consumer->call(fanout::AcquireRequest{key, 0, 1, 1000});
  ASSERT_TRUE(got.ok()) << got.error().message;
  ASSERT_EQ(got->leases.size(), 1u);
  EXPECT_EQ(*got->leases[0].ref, *ref);
  const auto beat = consumer->call(fanout::HeartbeatRequest{key, true, {got->leases[0].token, "gone"}});
  ASSERT_TRUE(beat.ok());
  EXPECT_EQ(beat->renewed.at(got->leases[0].token), 30'000);
  EXPECT_EQ(beat->lost, std::vector<std::string>{"gone"});
  const auto acked = consumer->call(fanout::AdvanceRequest{{key.session_id, key.session_epoch, 1}, 0, 1, 1, true});
  ASSERT_TRUE(acked.ok());
  EXPECT_EQ(acked->cursor, 1);
  const auto snapshot = producer->call(fanout::SnapshotRequest{});
  ASSERT_TRUE(snapshot.ok()) << snapshot.error().message;
  EXPECT_EQ(snapshot->consumers[0].cursor, 1);
  EXPECT_EQ(snapshot->counters.at("capture_count"), 1);
}

TEST_F(RpcTest, AnAcquireWaitsOnTheConnectionUntilItsPositionIsReady) {
  auto consumer = client("consumer secret");
  auto producer = client("producer secret");
  const auto session = consumer->call(registration("a"));
  ASSERT_TRUE(session.ok());
  std::optional<fanout::Outcome<fanout::AcquireReply>> got;
  Thread waiter("waiter", [&] {
    got.emplace(consumer->call(fanout::AcquireRequest{{session->session_id, session->session_epoch}, 0, 1, 20'000}));
  });
  auto claimed = producer->call(fanout::ClaimRequest{"w", "http://server", 1, 1, 1000});
  ASSERT_TRUE(claimed.ok());
  const auto& order = claimed->requests[0];
  ASSERT_TRUE(
      producer->call(fanout::MarkCommittingRequest{0, order.generation, order.nonce, fanout::ref_for(order), 10}).ok());
  ASSERT_TRUE(producer->call(fanout::CompleteCaptureRequest{0, order.generation, order.nonce}).ok());
  waiter.join();
  ASSERT_TRUE(got->ok());
  EXPECT_EQ((*got)->leases.size(), 1u);
}

// Fault 45, invariant 37, the issue's auth test: every operation, every wrong token.
TEST_F(RpcTest, WithoutAValidTokenNothingChanges) {
  const int commits = storage_.commits;
  const auto before = reply_json(*registry_answer(), context_);
  for (const Operation& operation : operations()) {
    for (const std::string authorization : {"", "Bearer", "Bearer ", "Bearer wrong", "Bearer consumer secre",
                                            "Basic consumer secret", "consumer secret"}) {
      const auto response = post(std::string(operation.name), "{\"reason\":\"x\"}", authorization);
      EXPECT_EQ(response.status, 401) << operation.name << " with '" << authorization << "'";
      EXPECT_NE(response.body.find("UNAUTHENTICATED"), std::string::npos);
      EXPECT_EQ(response.body.find("secret"), std::string::npos) << "a token is echoed";
    }
  }
  EXPECT_EQ(reply_json(*registry_answer(), context_), before);
  EXPECT_EQ(storage_.commits, commits);
}

TEST_F(RpcTest, AConsumersTokenIsRefusedOnEveryOperationOfTheProducer) {
  const auto before = reply_json(*registry_answer(), context_);
  int tried = 0;
  for (const Operation& operation : operations()) {
    if (operation.role != Role::kProducer) continue;
    tried += 1;
    const auto response = post(std::string(operation.name), "{\"reason\":\"x\"}", "Bearer consumer secret");
    EXPECT_EQ(response.status, 403) << operation.name;
    EXPECT_NE(response.body.find("\"ROLE\""), std::string::npos);
  }
  EXPECT_EQ(tried, 10);
  EXPECT_EQ(reply_json(*registry_answer(), context_), before);
}

TEST_F(RpcTest, AnOpenRegistryIsNotServed) {
  http::ServerOptions options;
  options.port = 0;
  auto server = http::Server::listen(options, metrics_);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(mount_registry(**server, *registry_, {"", "producer"}, context_).code(), StatusCode::kInvalidArgument);
}

TEST_F(RpcTest, BadBodiesAreRefusedByNameAndTheNextRequestWorks) {
  const std::string authorization = "Bearer producer secret";
  const struct {
    const char* operation;
    std::string body;
    const char* named;
  } cases[] = {
      {"acquire", "", "JSON"},
      {"acquire", "[]", "object"},
      {"acquire", "{", "JSON"},
      {"acquire", "{\"session_id\":7}", "session_id"},
      {"acquire", R"({"session_id":"a/1","session_epoch":1,"from":0})", "max_n"},
      {"acquire", R"({"session_id":"a/1","session_epoch":1.5,"from":0,"max_n":1})", "session_epoch"},
      {"acquire", R"({"session_id":"a/1","session_epoch":1,"from":99999999999999999999,"max_n":1})", "JSON"},
      {"abort", R"({"reason":"a\u0000b"})", "NUL"},
      {"report_lost",
       R"({"session_id":"a/1","session_epoch":1,"op":1,"source_index":0,"generation":1,"reason":"bored"})", "reason"},
      {"mark_committing", R"({"source_index":0,"generation":1,"nonce":"n","bytes":1,"ref":{}})", "ref.sample_id"},
      {"finish_evictions", R"({"source_index":-1,"generation":1,"failed_keys":[]})", "source_index"},
      {"finish_evictions", R"({"source_index":0,"generation":1,"failed_keys":[1]})", "failed_keys"},
      {"claim_batch", R"({"worker":"w","server":"s","claim_id":1,"max_requests":0})", "max_requests"},
      {"abort", "{\"reason\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "JSON"},
  };
  for (const auto& [operation, body, named] : cases) {
    const auto response = post(operation, body, authorization);
    EXPECT_EQ(response.status, 400) << operation << " " << body.substr(0, 80) << " -> " << response.body;
    EXPECT_NE(response.body.find(named), std::string::npos) << operation << " " << response.body;
    EXPECT_NE(response.body.find("BAD_REQUEST"), std::string::npos);
  }
  EXPECT_EQ(post("abort", std::string((1 << 20) + 1, ' '), authorization).status, 422);
  EXPECT_EQ(post("no_such_operation", "{}", authorization).status, 404);
  EXPECT_EQ(post("snapshot", "{}", authorization).status, 200);
}

TEST_F(RpcTest, ErrorsKeepTheirCodeAcrossTheWire) {
  auto consumer = client("consumer secret");
  EXPECT_EQ(consumer->call(registration("nobody")).error().code, ErrorCode::kUnknownConsumer);
  auto other = registration("a");
  other.contract_digest = "another";
  EXPECT_EQ(consumer->call(other).error().code, ErrorCode::kContractMismatch);
  other = registration("a");
  other.quantum = 2;
  const auto refused = consumer->call(other);
  EXPECT_EQ(refused.error().code, ErrorCode::kPlanMismatch);
  EXPECT_NE(refused.error().message.find("quantum"), std::string::npos);
  EXPECT_EQ(consumer->call(fanout::AcquireRequest{{"a/x", 1}, 0, 1, 0}).error().code, ErrorCode::kSessionFenced);
}

// Fault 12: the client goes on trying while the registry is away, with growing pauses, and ends when patience does.
TEST(RegistryClient, TriesAgainWithGrowingPausesUntilItsPatienceEnds) {
  ManualClock clock;
  std::vector<std::int64_t> pauses;
  ClientOptions options;
  options.port = 1;  // nobody listens there
  options.patience = std::chrono::milliseconds(1000);
  options.first_pause = std::chrono::milliseconds(100);
  options.longest_pause = std::chrono::milliseconds(400);
  RegistryClient client(options, {}, clock, [&](std::chrono::milliseconds pause) {
    pauses.push_back(pause.count());
    clock.advance_us(pause.count() * 1000);
  });
  EXPECT_EQ(client.call(fanout::SnapshotRequest{}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{100, 200, 400, 400}));
}

TEST_F(RpcTest, MetricsAreTheSnapshotForWhoeverHasAToken) {
  http::Client plain("127.0.0.1", server_->port());
  EXPECT_EQ(plain.get("/metrics")->status, 401);
  ASSERT_TRUE(client("consumer secret")->call(registration("a")).ok());
  const auto answer = plain.request({.target = "/metrics", .headers = {{"Authorization", "Bearer consumer secret"}}});
  ASSERT_EQ(answer->status, 200);
  for (const char* line :
       {"# TYPE levada:fanout_live_refs gauge\nlevada:fanout_live_refs 0\n", "levada:fanout_entries{state=\"queued\"} ",
        "levada:fanout_run_status{status=\"active\"} 1\n", "levada:fanout_capture_latency_ms_sum 0\n",
        "levada:fanout_admission_blocked_refs_ms 0\n", "levada:fanout_consumer_cursor{consumer=\"a\"} 0\n"}) {
    EXPECT_NE(answer->body.find(line), std::string::npos) << line << "\n" << answer->body;
  }
}

TEST_F(RpcTest, AStopEndsACallThatWaitsAndEveryLaterOne) {
  std::stop_source stop;
  ClientOptions options;
  options.port = server_->port();
  options.token = "consumer secret";
  options.stop = stop.get_token();
  RegistryClient client(options, context_, clock_, [](std::chrono::milliseconds) { FAIL() << "nobody waits now"; });
  const auto session = client.call(registration("a"));
  ASSERT_TRUE(session.ok());
  const std::int64_t began_us = clock_.now_us();
  Thread stopper("stopper", [&] { stop.request_stop(); });
  const fanout::AcquireRequest waiting{{session->session_id, session->session_epoch}, 0, 1, 20'000};
  EXPECT_EQ(client.call(waiting).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client.call(waiting).error().code, ErrorCode::kUnavailable);
  EXPECT_LT(clock_.now_us() - began_us, 10'000'000);
}

}  // namespace
}  // namespace levada::registry
