// The served surface over real HTTP, a real scheduler and a scripted model: what a client sees, in good and bad days.
#include "serve/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "serve/chain_model_test.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kManyPolls = 5000;
constexpr const char* kAnswer = "Hello 😀 world, ABCDEFGHIJ";

core::Token only_token(const std::string& text) {
  const auto tokens = test_tokenizer().encode(text, {false, true});
  EXPECT_EQ(tokens.size(), 1u) << text;
  return tokens.back();
}

class Served : public ::testing::Test {
 protected:
  void start(Options options = {}, sched::Options sched_options = {}) {
    site_ = std::make_unique<Site>(std::move(options), sched_options);
    site_->model.chain(only_token("\n"), kAnswer);  // every chat prompt ends in a line break
    site_->start();
  }

  http::ClientResponse post(const std::string& path, const std::string& body) {
    http::Client client = site_->client();
    return client.post(path, body).value();
  }
  http::ClientResponse get(const std::string& path) { return site_->client().get(path).value(); }
  Json post_json(const std::string& path, const std::string& body) { return Json::parse(post(path, body).body); }
  // The contents of a chat stream; each event must be JSON, which a split character is not.
  std::string streamed_text(const std::string& body) {
    const std::string stream = post("/v1/chat/completions", body).body;
    std::string text;
    std::size_t at = 0;
    for (std::size_t end; (end = stream.find("\n\n", at)) != std::string::npos; at = end + 2) {
      const std::string data = stream.substr(at + 6, end - at - 6);
      if (data != "[DONE]") text += Json::parse(data)["choices"][0]["delta"].value("content", "");
    }
    return text;
  }
  static std::string chat(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"Hi"}],"temperature":0)" + fields + "}";
  }
  static std::string endless(const std::string& fields) {
    return R"({"input_ids":[300],"sampling_params":{"temperature":0,"max_new_tokens":200,"ignore_eos":true})" + fields +
           "}";
  }
  Json state() { return Json::parse(get("/server_info").body)["internal_states"][0]; }

  // Polls until nothing runs or waits; the number of polls is bounded by the client's own speed.
  void expect_idle() {
    for (int i = 0; i < kManyPolls; ++i) {
      const Json now = state();
      if (now["running"] == 0 && now["waiting"] == 0 && now["prefilling"] == 0 && now["leased_pages"] == 0) break;
    }
    const Json audit = Json::parse(get("/debug/audit").body);
    EXPECT_TRUE(audit["ok"]) << audit;
    EXPECT_EQ(audit["snapshot"]["leased_pages"], 0) << audit;
    EXPECT_EQ(audit["snapshot"]["running"], 0) << audit;
  }

  void expect_live() {
    const auto live = [](const Json& now) { return now["running"].get<int>() + now["prefilling"].get<int>() > 0; };
    for (int i = 0; i < kManyPolls; ++i) {
      if (live(state())) return;
    }
    FAIL() << "no request has started";
  }

  std::unique_ptr<Site> site_;
};

TEST_F(Served, ChatAnswersWholeWithUsage) {
  start();
  const Json answer = post_json("/v1/chat/completions", chat(""));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], kAnswer);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["total_tokens"],
            answer["usage"]["prompt_tokens"].get<int>() + answer["usage"]["completion_tokens"].get<int>());
}

TEST_F(Served, SecondAskOfTheSamePromptReportsCachedTokens) {
  start();
  const Json cold = post_json("/v1/chat/completions", chat(""));
  const Json warm = post_json("/v1/chat/completions", chat(""));
  EXPECT_EQ(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(warm["usage"]["prompt_tokens_details"]["cached_tokens"], cold["usage"]["prompt_tokens"].get<int>() - 1);
  EXPECT_EQ(warm["choices"], cold["choices"]);
}

TEST_F(Served, B28NamespacesShareNothing) {
  start();
  const auto cached = [&](const std::string& fields) {
    return post_json("/v1/chat/completions", chat(fields))["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int>();
  };
  EXPECT_EQ(cached(R"(,"extra_key":"c","cache_salt":"ab")"), 0);
  EXPECT_EQ(cached(R"(,"extra_key":"bc","cache_salt":"a")"), 0);
  EXPECT_EQ(cached(R"(,"extra_key":"")"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_GT(cached(R"(,"extra_key":"c","cache_salt":"ab")"), 0);
}

TEST_F(Served, B13StreamNeverSplitsACharacterAndEqualsTheWholeAnswer) {
  start();
  const auto answer_tokens = static_cast<int>(test_tokenizer().encode(kAnswer, {false, false}).size());
  for (int max_tokens = 1; max_tokens < answer_tokens; ++max_tokens) {
    const std::string limit = ",\"max_tokens\":" + std::to_string(max_tokens);
    const Json whole = post_json("/v1/chat/completions", chat(limit));
    const std::string text = streamed_text(chat(limit + ",\"stream\":true"));
    EXPECT_EQ(text, whole["choices"][0]["message"]["content"]) << max_tokens;
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  }
}

TEST_F(Served, B37StopStringIsWithheldAcrossTokensInBothModes) {
  start();
  const std::string stop = R"(,"stop":["DEFGHIJ"])";
  const Json whole = post_json("/v1/chat/completions", chat(stop));
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Hello 😀 world, ABC");
  EXPECT_EQ(whole["choices"][0]["matched_stop"], "DEFGHIJ");
  EXPECT_EQ(streamed_text(chat(stop + ",\"stream\":true")), "Hello 😀 world, ABC");
  EXPECT_EQ(post("/v1/chat/completions", chat(R"(,"stop":[""])")).status, 400);
  EXPECT_EQ(post("/v1/chat/completions", chat(R"(,"stop":null)")).status, 200);
  EXPECT_EQ(post("/v1/chat/completions", chat(R"(,"stop":[])")).status, 200);
}

TEST_F(Served, SeedsRepeatAndDiffer) {
  start();
  const auto ids = [&](const std::string& seed) {
    return post_json("/generate",
                     R"({"input_ids":[5],"sampling_params":{"max_new_tokens":8,"seed":)" + seed + "}}")["output_ids"];
  };
  EXPECT_EQ(ids("7"), ids("7"));
  EXPECT_NE(ids("7"), ids("8"));
  EXPECT_NE(ids("null"), ids("null"));
}

TEST_F(Served, GenerateBatchKeepsOrderAndIndexes) {
  start();
  const std::string body =
      R"({"input_ids":[[300],[5,300],[6,7,300]],"sampling_params":{"temperature":0,"max_new_tokens":3})";
  const Json list = post_json("/generate", body + "}");
  ASSERT_EQ(list.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(list[i]["meta_info"]["prompt_tokens"], i + 1);
  const std::string stream = post("/generate", body + ",\"stream\":true}").body;
  EXPECT_THAT(stream, HasSubstr("\"index\":2"));
  EXPECT_THAT(stream, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(Served, CompletionsAnswerEachPromptAsAChoice) {
  start();
  const Json answer = post_json("/v1/completions", R"({"prompt":[[300],[5,300]],"max_tokens":2,"temperature":0})");
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TEST_F(Served, B36SecondLiveUseOfARequestIdIsRefusedAndTheFirstGoesOn) {
  start();
  site_->model.hold();
  http::ClientResponse first;
  {
    const Thread asker("asker", [&] { first = post("/generate", endless(R"(,"rid":"twin")")); });
    expect_live();
    const http::ClientResponse second = post("/generate", endless(R"(,"rid":"twin")"));
    EXPECT_EQ(second.status, 409);
    EXPECT_EQ(Json::parse(second.body)["error"]["param"], "rid");
    site_->model.release();
  }
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(Json::parse(first.body)["meta_info"]["completion_tokens"], 200);
  EXPECT_EQ(post("/generate", endless(R"(,"rid":"twin")")).status, 200) << "use after the end is allowed";
}

TEST_F(Served, B41NothingABodySaysEndsTheServer) {
  start();
  const std::pair<const char*, const char*> bodies[] = {
      {"/v1/completions", R"({"prompt":[999999]})"},
      {"/v1/completions", R"({"prompt":[-1]})"},
      {"/v1/completions", R"({"prompt":[]})"},
      {"/v1/completions", R"({"prompt":""})"},
      {"/v1/completions", R"({"prompt":"a","max_tokens":-1})"},
      {"/v1/completions", R"({"prompt":"a","stop_token_ids":[99999999]})"},
      {"/v1/completions", R"({"prompt":"\ud800"})"},
      {"/v1/completions", "{\"prompt\":\"\xff\"}"},
      {"/generate", R"({"text":null})"},
      {"/generate", "null"},
      {"/tokenize", R"({"prompt":3})"},
      {"/detokenize", R"({"tokens":[1e9]})"},
      {"/detokenize", R"({"tokens":"x"})"},
      {"/abort_request", R"({"abort_all":"yes"})"},
      {"/abort_request", "{}"}};
  for (const auto& [path, body] : bodies) {
    const http::ClientResponse answer = post(path, body);
    EXPECT_EQ(answer.status, 400) << path << body << answer.body;
    EXPECT_TRUE(Json::parse(answer.body)["error"].contains("param")) << answer.body;
    EXPECT_EQ(post("/v1/chat/completions", chat("")).status, 200) << "after " << path << body;
  }
}

TEST_F(Served, B42ClientsThatGoAwayLeaveNothing) {
  start();
  const int before = state()["free_pages"];
  for (const char* fields : {R"(,"stream":true)", ""}) {
    site_->model.hold();
    {
      http::Client client = site_->client();
      http::ClientRequest request;
      request.method = "POST";
      request.target = "/generate";
      request.body = endless(fields);
      request.timeout = std::chrono::milliseconds(200);  // gives up while the step is held
      EXPECT_FALSE(client.request(request).ok());
    }
    site_->model.release();
    expect_idle();
  }
  {
    http::Client client = site_->client();
    http::ClientRequest request;
    request.method = "POST";
    request.target = "/generate";
    request.body = endless(R"(,"stream":true)");
    request.on_body = [](std::string_view) { return false; };  // leaves after the first bytes
    EXPECT_FALSE(client.request(request).ok());
  }
  expect_idle();
  EXPECT_EQ(post("/flush_cache?timeout=5", "").status, 200);
  EXPECT_EQ(state()["free_pages"], before);
}

TEST_F(Served, B42HealthProbesShareOneRequestAndLeaveNothing) {
  Options options;
  options.health_timeout_s = 1;
  start(options);
  EXPECT_EQ(get("/health_generate").status, 200);
  site_->model.hold();
  std::vector<int> statuses(5);
  {
    std::vector<Thread> askers;
    for (int& status : statuses) askers.emplace_back("asker", [&] { status = get("/health_generate").status; });
    const auto requests = [&] {
      const Json now = state();
      return now["running"].get<int>() + now["waiting"].get<int>() + now["prefilling"].get<int>();
    };
    int seen = 0;
    for (int i = 0; i < kManyPolls && seen == 0; ++i) seen = requests();
    EXPECT_EQ(seen, 1) << "the probe has reached the scheduler";
    for (int i = 0; i < 100; ++i) EXPECT_LE(requests(), 1) << "whoever else asks shares it";
  }
  EXPECT_THAT(statuses, ::testing::Each(503));
  site_->model.release();
  expect_idle();
  EXPECT_EQ(get("/health_generate").status, 200);
}

TEST_F(Served, B43DeviceFailureIsAnErrorBeforeAndAfterTheFirstByte) {
  start();
  site_->model.fail_after(0);
  EXPECT_EQ(post("/generate", endless(R"(,"stream":true)")).status, 500);
  site_->model.fail_after(5);
  const http::ClientResponse later = post("/generate", endless(R"(,"stream":true)"));
  EXPECT_EQ(later.status, 200);
  EXPECT_THAT(later.body, HasSubstr("data: {\"error\":{\"message\":"));
  EXPECT_THAT(later.body, Not(HasSubstr("[DONE]")));
  site_->model.fail_after(-1);
  EXPECT_EQ(post("/v1/chat/completions", chat("")).status, 200);
  expect_idle();
}

TEST_F(Served, AfterTheDeviceIsLostEveryAnswerSaysSoAndTheProcessEndsCleanly) {
  start();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(Json::parse(get("/server_info").body)["health"], "ok");
  site_->model.hold();
  std::vector<http::ClientResponse> affected(3);
  {
    std::vector<Thread> askers;
    for (http::ClientResponse& answer : affected) {
      askers.emplace_back("asker", [&] { answer = post("/generate", endless("")); });
    }
    expect_live();
    site_->model.lose("the device is lost: kept error 700");
    site_->model.release();
  }
  for (const http::ClientResponse& answer : affected) {
    EXPECT_GE(answer.status, 500) << answer.body;  // one that came after the loss is a 503
    EXPECT_THAT(answer.body, HasSubstr("kept error 700"));
  }
  for (const char* path : {"/health", "/health_generate"}) {
    const http::ClientResponse health = get(path);
    EXPECT_EQ(health.status, 503) << path;
    EXPECT_THAT(health.body, HasSubstr("kept error 700; the server must be restarted")) << path;
  }
  const http::ClientResponse later = post("/v1/chat/completions", chat(""));
  EXPECT_EQ(later.status, 503);
  EXPECT_THAT(later.body, HasSubstr("kept error 700"));
  EXPECT_THAT(Json::parse(get("/server_info").body)["health"].get<std::string>(), HasSubstr("kept error 700"));
  EXPECT_EQ(get("/v1/models").status, 200);
  expect_idle();
}

TEST_F(Served, AbortRequestEndsTheNamedRequestWithWhatItHas) {
  start();
  site_->model.hold();
  http::ClientResponse aborted;
  {
    const Thread asker("asker", [&] { aborted = post("/generate", endless(R"(,"rid":"stop-me")")); });
    expect_live();
    EXPECT_EQ(post("/abort_request", R"({"rid":"somebody else"})").status, 200);
    EXPECT_EQ(post("/abort_request", R"({"rid":"stop-me"})").status, 200);
    site_->model.release();
  }
  EXPECT_EQ(aborted.status, 200);
  EXPECT_EQ(Json::parse(aborted.body)["meta_info"]["finish_reason"]["type"], "abort");
  expect_idle();
}

TEST_F(Served, KeysGuardEverythingButHealthAndThePage) {
  Options options;
  options.api_key = "user-key";
  options.admin_api_key = "admin-key";
  start(options);
  const auto with_key = [&](const std::string& path, const std::string& key) {
    http::ClientRequest request;
    request.target = path;
    if (!key.empty()) request.headers["Authorization"] = "Bearer " + key;
    return site_->client().request(request).value().status;
  };
  EXPECT_EQ(with_key("/health", ""), 200);
  EXPECT_EQ(with_key("/", ""), 200);
  EXPECT_EQ(with_key("/v1/models", ""), 401);
  EXPECT_EQ(with_key("/v1/models", "user-kex"), 401);
  EXPECT_EQ(with_key("/v1/models", "user-key"), 200);
  EXPECT_EQ(with_key("/v1/models", "admin-key"), 200);
  EXPECT_EQ(with_key("/flush_cache", "user-key"), 401);
  EXPECT_EQ(with_key("/flush_cache", "admin-key"), 200);
  http::ClientRequest request;
  request.target = "/server_info";
  request.headers["Authorization"] = "Bearer user-key";
  EXPECT_THAT(site_->client().request(request).value().body, Not(HasSubstr("user-key")));
}

TEST_F(Served, WebPagesOfOtherOriginsMayUseTheModelButAdministerNothing) {
  start();
  const auto from_a_page = [&](const std::string& method, const std::string& path) {
    const std::map<std::string, std::string> headers = {{"Origin", "https://elsewhere.example"}};
    return site_->client().request({.method = method, .target = path, .headers = headers}).value();
  };
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/generate", "/tokenize", "/detokenize"}) {
    EXPECT_EQ(from_a_page("POST", path).headers["access-control-allow-origin"], "*") << path;
    EXPECT_THAT(from_a_page("OPTIONS", path).headers["access-control-allow-methods"], HasSubstr("POST")) << path;
  }
  for (const char* path : {"/v1/models", "/health", "/health_generate", "/model_info"}) {
    EXPECT_EQ(from_a_page("GET", path).headers["access-control-allow-origin"], "*") << path;
  }
  for (const auto& [method, path] : {std::pair{"GET", "/flush_cache"}, std::pair{"POST", "/flush_cache"},
                                     std::pair{"POST", "/abort_request"}, std::pair{"GET", "/debug/audit"}}) {
    EXPECT_EQ(from_a_page(method, path).status, 403) << path;
    for (const char* asked : {method, "OPTIONS"}) {
      EXPECT_FALSE(from_a_page(asked, path).headers.contains("access-control-allow-origin")) << path;
      EXPECT_FALSE(from_a_page(asked, path).headers.contains("access-control-allow-methods")) << path;
    }
  }
  EXPECT_EQ(get("/flush_cache").status, 200) << "a client that is no browser";
}

TEST_F(Served, InfoEndpointsSayWhatToolsLookFor) {
  start();
  const Json models = Json::parse(get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "smollm2");
  EXPECT_EQ(models["data"][0]["max_model_len"], 256);
  EXPECT_EQ(Json::parse(get("/get_model_info").body)["model_path"], "smollm2");
  const Json info = Json::parse(get("/get_server_info").body);
  EXPECT_EQ(info["port"], 0);
  EXPECT_EQ(info["max_total_num_tokens"], 512);
  EXPECT_EQ(info["internal_states"][0]["total_pages"], 512);
  post("/v1/chat/completions", chat(""));
  EXPECT_THAT(get("/metrics").body, HasSubstr("sglang:num_requests_total{"));
  EXPECT_THAT(get("/").body, HasSubstr("<title>levada</title>"));
  EXPECT_EQ(get("/flush_cache?timeout=x").status, 400);
}

TEST_F(Served, TextEndpointsAreInverse) {
  start();
  const Json tokens = post_json("/tokenize", R"({"prompt":"Hello 😀"})");
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(post_json("/detokenize", "{\"tokens\":" + tokens["tokens"].dump() + "}")["text"], "Hello 😀");
  const Json cut = post_json("/detokenize", "{\"tokens\":[" + tokens["tokens"][1].dump() + "]}");
  EXPECT_TRUE(cut["text"].is_string());
  EXPECT_EQ(post_json("/tokenize", R"({"prompt":["a","b"]})")["count"], Json::parse("[1,1]"));
}

TEST_F(Served, AFullServerIsNotAnIllOne) {
  sched::Options small;
  small.max_running_requests = 1;
  small.max_queued_requests = 1;
  start({}, small);
  site_->model.hold();
  int health = 0;
  std::atomic<bool> answered = false;
  {
    std::vector<Thread> askers;
    askers.emplace_back("runs", [&] { post("/generate", endless("")); });
    expect_live();
    askers.emplace_back("waits", [&] { post("/generate", endless("")); });
    for (int i = 0; i < kManyPolls && state()["waiting"] != 1; ++i) {
    }
    EXPECT_EQ(state()["waiting"], 1) << "a further request would be refused";
    askers.emplace_back("probe", [&] {
      health = get("/health_generate").status;
      answered = true;
    });
    for (int i = 0; i < 200; ++i) (void)state();
    EXPECT_FALSE(answered) << "a refused probe says nothing";
    EXPECT_EQ(post("/abort_request", R"({"abort_all":true})").status, 200);
    site_->model.release();
  }
  EXPECT_EQ(health, 200) << "the probe is sent again when there is room";
}

TEST_F(Served, AFullServerWhoseEngineHangsIsIll) {
  Options options;
  options.health_timeout_s = 1;
  sched::Options small;
  small.max_running_requests = 1;
  small.max_queued_requests = 1;
  start(options, small);
  site_->model.hold();
  std::vector<Thread> askers;
  for (int i = 0; i < 2; ++i) askers.emplace_back("asker", [&] { post("/generate", endless("")); });
  expect_live();
  EXPECT_EQ(get("/health_generate").status, 503);
  site_->model.release();
  askers.clear();
}

TEST_F(Served, TextEndpointsAreBoundedAsPromptsAre) {
  Options options;
  options.max_batch_prompts = 2;
  start(options);
  const std::size_t longest = longest_fitting_text_bytes(test_tokenizer(), 256);
  const auto status = [&](const std::string& path, const std::string& body) { return post(path, body).status; };
  const std::string long_text = "\"" + std::string(longest + 1, 'a') + "\"";
  EXPECT_EQ(status("/tokenize", "{\"prompt\":" + long_text + "}"), 413);
  EXPECT_EQ(status("/tokenize", "{\"prompt\":[\"a\"," + long_text + "]}"), 413);
  EXPECT_EQ(status("/tokenize", R"({"prompt":["a","b"]})"), 200);
  EXPECT_EQ(status("/tokenize", R"({"prompt":["a","b","c"]})"), 400);
  EXPECT_EQ(status("/detokenize", R"({"tokens":[[1],[2]]})"), 200);
  EXPECT_EQ(status("/detokenize", R"({"tokens":[[1],[2],[3]]})"), 400);
  const auto ids = [](int count) {
    std::string list = "1";
    for (int i = 1; i < count; ++i) list += ",1";
    return "{\"tokens\":[" + list + "]}";
  };
  EXPECT_EQ(status("/detokenize", ids(256)), 200);
  EXPECT_EQ(status("/detokenize", ids(257)), 413);
}

TEST_F(Served, ARequestThatReachesAStoppedSchedulerGets503) {
  start();
  site_->stop_scheduler();
  const http::ClientResponse answer = post("/generate", endless(""));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the server is shutting down"));
  EXPECT_EQ(post("/generate", endless(R"(,"stream":true)")).status, 503);
  EXPECT_EQ(get("/health_generate").status, 503);
}

TEST_F(Served, FullQueueIs429) {
  sched::Options small;
  small.max_running_requests = 1;
  small.max_queued_requests = 1;
  start({}, small);
  site_->model.hold();
  std::vector<int> statuses(6);
  std::atomic<int> refused = 0;
  {
    std::vector<Thread> askers;
    for (int& status : statuses) {
      askers.emplace_back("asker", [&] {
        status = post("/generate", endless("")).status;
        refused += status == 429;
      });
    }
    for (int i = 0; i < kManyPolls && refused < 4; ++i) (void)state();
    site_->model.release();
  }
  EXPECT_EQ(refused, 4) << "one runs, one waits";
  EXPECT_THAT(statuses, ::testing::Each(::testing::AnyOf(200, 429)));
}

}  // namespace
}  // namespace levada::serve
