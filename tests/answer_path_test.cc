// The whole serving path around a scripted model: what a client reads is what the model said, however the answer is asked for.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "bench/scripted_server.h"
#include "http/client.h"
#include "support/instrumented.h"

namespace levada {
namespace {

using bench::ScriptedServer;
using nlohmann::json;
using text::Token;

const text::Tokenizer& tokenizer() {
  static const auto tiny =
      text::Tokenizer::from_json(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama/tokenizer.json").value();
  return *tiny;
}

const text::ChatTemplate& chat_template() {
  static const auto parsed = text::ChatTemplate::parse(tokenizer().chat_template()).value();
  return *parsed;
}

std::unique_ptr<ScriptedServer> serve(ScriptedServer::Script script, sched::Options options = {}) {
  return ScriptedServer::start({tokenizer(), chat_template(), std::move(script), options}).value();
}

json call(std::uint16_t port, const std::string& path, const json& body) {
  const auto response = http::Client("127.0.0.1", port).post(path, body.dump());
  if (!response.ok() || response->status != 200)
    ADD_FAILURE() << path << ": " << (response.ok() ? response->body : response.status().to_string());
  return response.ok() ? json::parse(response->body, nullptr, false) : json();
}

// The events of a stream, "[DONE]" left out.
std::vector<json> events_of(const std::string& body) {
  std::vector<json> events;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != body.npos; ++at) {
    const std::string line = body.substr(at + 6, body.find('\n', at) - at - 6);
    if (line != "[DONE]") events.push_back(json::parse(line));
  }
  return events;
}

std::vector<json> stream(std::uint16_t port, const std::string& path, json body) {
  body["stream"] = true;
  const auto response = http::Client("127.0.0.1", port).post(path, body.dump());
  if (!response.ok() || response->status != 200)
    ADD_FAILURE() << (response.ok() ? response->body : response.status().to_string());
  return response.ok() ? events_of(response->body) : std::vector<json>();
}

// ---- A thousand streams at once ----

constexpr int kStreams = test::kInstrumented ? 100 : 1000;
constexpr int kTokens = 48;

// Every stream has words of its own, in an order of its own.
Token word_of(std::uint64_t seed, std::int32_t position) {
  static const std::vector<Token> words = tokenizer().encode(
      "one day the sun and the moon went out to see what was left of the old stone wall", {false, false});
  return words[(seed * 31 + static_cast<std::uint64_t>(position) * (seed % 7 + 1)) % words.size()];
}

// Its socket, and all that has come from it.
class Reader {
 public:
  Reader(std::uint16_t port, std::uint64_t seed) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const json body = {{"model", "scripted"}, {"prompt", {5, 6, 7}}, {"stream", true},       {"ignore_eos", true},
                       {"seed", seed},        {"temperature", 1},    {"max_tokens", kTokens}};
    const std::string text = body.dump();
    const std::string request =
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
        "Content-Length: " +
        std::to_string(text.size()) + "\r\n\r\n" + text;
    EXPECT_EQ(::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<long>(request.size()));
  }

  int descriptor() const { return socket_.get(); }
  const std::string& all() const { return all_; }
  // False at the end.
  bool read_some() {
    char buffer[16384];
    const long got = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (got > 0) all_.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }

 private:
  Fd socket_;
  std::string all_;
};

// False if the server hangs.
bool read_to_the_end(std::vector<std::unique_ptr<Reader>>& readers) {
  std::vector<pollfd> waiting;
  for (const auto& reader : readers) waiting.push_back({reader->descriptor(), POLLIN, 0});
  for (std::size_t open = readers.size(); open > 0;) {
    if (::poll(waiting.data(), waiting.size(), 30'000) <= 0) return false;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0 || readers[i]->read_some()) continue;
      waiting[i].fd = -1;
      --open;
    }
  }
  return true;
}

bool all_have_begun(std::uint16_t port) {
  const auto metrics = http::Client("127.0.0.1", port).get("/metrics");
  const std::string begun = "sglang:num_requests_total{is_streaming=\"true\"} " + std::to_string(kStreams) + "\n";
  return metrics.ok() && metrics->body.find(begun) != std::string::npos;
}

TEST(AnswerPath, AThousandStreamsAtOnceLoseAndReorderNothing) {
  sched::Options options;
  options.max_running_requests = kStreams;
  options.chunked_prefill_size = -1;
  // The first token of all waits until the last request is in, so that all streams are open at once.
  std::atomic<bool> open = false;
  const auto server = serve(
      [&open](std::uint64_t seed, std::int32_t position) {
        open.wait(false);
        return word_of(seed, position);
      },
      options);
  std::vector<std::unique_ptr<Reader>> readers;
  for (std::uint64_t seed = 0; seed < kStreams; ++seed)
    readers.push_back(std::make_unique<Reader>(server->port(), seed));
  while (!all_have_begun(server->port())) std::this_thread::yield();
  open = true;
  open.notify_all();
  ASSERT_TRUE(read_to_the_end(readers));
  for (std::uint64_t seed = 0; seed < kStreams; ++seed) {
    std::string expected, got;
    for (std::int32_t i = 0; i < kTokens; ++i) expected += tokenizer().bytes(word_of(seed, 3 + i));
    const std::string& all = readers[seed]->all();
    for (const json& event : events_of(all)) got += event.at("choices").at(0).at("text").get<std::string>();
    ASSERT_EQ(got, expected) << "stream " << seed;
    ASSERT_TRUE(all.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n")) << "stream " << seed;
  }
  EXPECT_TRUE(server->audit().ok());
}

// ---- One answer, however it is asked for ----

// What is said of a choice, and why it ended.
struct Choice {
  std::string text, reason;
  json matched;
  bool operator==(const Choice&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Choice& choice) {
  return out << json(choice.text).dump() << " " << choice.reason << " " << choice.matched;
}

std::map<int, Choice> whole_of(const json& answer) {
  std::map<int, Choice> choices;
  for (const json& choice : answer.at("choices"))
    choices[choice.at("index")] = {choice.at("message").at("content"), choice.at("finish_reason"),
                                   choice.value("matched_stop", json())};
  return choices;
}

std::map<int, Choice> fold_of(const std::vector<json>& events) {
  std::map<int, Choice> choices;
  for (const json& event : events) {
    for (const json& choice : event.at("choices")) {
      Choice& so_far = choices[choice.at("index")];
      so_far.text += choice.at("delta").value("content", "");
      if (choice.at("finish_reason").is_null()) continue;
      so_far.reason = choice.at("finish_reason");
      so_far.matched = choice.value("matched_stop", json());
    }
  }
  return choices;
}

// Ids of text in several alphabets, and of any bytes: characters that are cut, never completed or never begun.
std::vector<Token> any_script() {
  const std::vector<std::string> texts = {"the stone",          " wall ", "naïve ", "日本語", "🙂",
                                          "👩‍👩‍👧", "\n\n",   "STOP",   "e\u0301"};
  std::vector<Token> ids;
  for (int pieces = *rc::gen::inRange(1, 12); pieces > 0; --pieces) {
    if (*rc::gen::inRange(0, 4) == 0) {
      ids.push_back(*rc::gen::inRange(0, tokenizer().vocab_size()));
    } else {
      const auto more = tokenizer().encode(*rc::gen::elementOf(texts), {false, false});
      ids.insert(ids.end(), more.begin(), more.end());
    }
  }
  return ids;
}

json any_call() {
  json body = {
      {"model", "scripted"},
      {"messages", {{{"role", "user"}, {"content", *rc::gen::elementOf(std::vector<std::string>{"hi", "日本"})}}}},
      {"temperature", 1},
      {"seed", *rc::gen::inRange(0, 1000)},
      {"max_tokens", *rc::gen::inRange(1, 40)},
      {"ignore_eos", *rc::gen::arbitrary<bool>()}};
  json stops = json::array();
  for (int n = *rc::gen::inRange(0, 4); n > 0; --n)
    stops.push_back(
        *rc::gen::elementOf(std::vector<std::string>{"STOP", "wall the", "🙂日", "\n", "ï", "OPS", "e", "本語👩"}));
  if (!stops.empty()) body["stop"] = stops;
  return body;
}

// One server for all rounds; each round writes its scripts before it asks.
struct Scripts {
  std::vector<std::vector<Token>> of;  // by seed
  std::unique_ptr<ScriptedServer> server;

  static Scripts& instance() {
    static Scripts scripts;
    return scripts;
  }

 private:
  Scripts() {
    sched::Options options;
    options.chunked_prefill_size = 16;
    server = serve(
        [this](std::uint64_t seed, std::int32_t position) {
          const std::vector<Token>& script = of[seed % of.size()];
          return script[static_cast<std::size_t>(position) % script.size()];
        },
        options);
  }
};

RC_GTEST_PROP(AnswerPath, StreamedEqualsWholeAndEachOfSeveralEqualsItsOwnCall, ()) {
  Scripts& scripts = Scripts::instance();
  scripts.of.clear();
  for (int n = *rc::gen::inRange(1, 6); n > 0; --n) scripts.of.push_back(any_script());
  const std::uint16_t port = scripts.server->port();
  json body = any_call();
  const int n = *rc::gen::inRange(1, 5);
  body["n"] = n;
  const std::string path = "/v1/chat/completions";
  const std::map<int, Choice> whole = whole_of(call(port, path, body));
  RC_ASSERT(static_cast<int>(whole.size()) == n);
  RC_ASSERT(fold_of(stream(port, path, body)) == whole);
  const std::int64_t seed = body["seed"];
  body["n"] = 1;
  for (int i = 0; i < n; ++i) {
    body["seed"] = seed + i;
    RC_ASSERT(whole_of(call(port, path, body)).at(0) == whole.at(i));
  }
  RC_ASSERT(scripts.server->audit().ok());
}

// ---- Aborts ----

TEST(AnswerPath, AChoiceThatIsAbortedEndsAloneAndTheOthersAsTheyWouldHave) {
  const auto server = serve(word_of);
  const auto body = [](int n, int seed, int tokens) {
    return json{{"input_ids", {5, 6, 7}},
                {"rid", "family"},
                {"sampling_params",
                 {{"n", n}, {"seed", seed}, {"max_new_tokens", tokens}, {"ignore_eos", true}, {"temperature", 1}}}};
  };
  json call_of_three = body(3, 40, 400);
  call_of_three["stream"] = true;
  http::Client reader("127.0.0.1", server->port()), other("127.0.0.1", server->port());
  http::ClientRequest request{.method = "POST", .target = "/generate", .body = call_of_three.dump()};
  request.headers["content-type"] = "application/json";
  std::string all;
  bool aborted = false;
  request.on_body = [&](std::string_view bytes) {
    all += bytes;
    // While all three are under way: the first news has come, the last has not.
    if (!std::exchange(aborted, true)) {
      const auto told = other.post("/abort_request", R"({"rid":"family_1"})");
      EXPECT_TRUE(told.ok() && told->status == 200);
    }
    return true;
  };
  const auto response = reader.request(request);
  ASSERT_TRUE(response.ok()) << response.status().to_string();
  std::map<int, json> last;
  for (const json& event : events_of(all)) last[event.value("index", 0)] = event;
  ASSERT_EQ(last.size(), 3u) << all.substr(0, 600);
  for (int i = 0; i < 3; ++i) {
    const json& meta = last[i].at("meta_info");
    if (i == 1) {
      EXPECT_EQ(meta.at("finish_reason").at("type"), "abort");
      EXPECT_LT(meta.at("completion_tokens"), 400);
      continue;
    }
    EXPECT_EQ(meta.at("finish_reason").at("type"), "length");
    const json alone = call(server->port(), "/generate", body(1, 40 + i, 400));
    EXPECT_EQ(last[i].at("text"), alone.at("text")) << "choice " << i;
  }
  EXPECT_TRUE(server->audit().ok());
}

}  // namespace
}  // namespace levada
