#include "bench/http_bench.h"

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "base/thread.h"
#include "bench/bare_epoll.h"
#include "bench/cpu_clock.h"
#include "bench/keep_busy.h"
#include "bench/scripted_server.h"
#include "http/server.h"

namespace levada::bench {
namespace {

constexpr int kEventsPerStream = 200;
constexpr std::string_view kEvent =
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1764440000,"
    "\"model\":\"smollm2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
constexpr const char* kStreamEnd = "0\r\n\r\n";
constexpr const char* kAnswerEnd = "\"}";

// http::Server alone, with one route per case.
class Transport {
 public:
  explicit Transport(std::unique_ptr<http::Server> server) : server_(std::move(server)) {
    server_->route("GET", "/hello", [](http::Request, http::Responder out) {
      out.respond(200, "application/json", "{\"hello\":\"world\"}");
    });
    server_->route("GET", "/sse", [this](http::Request, http::Responder out) { begin(std::move(out), 1); });
    server_->route("GET", "/sse8", [this](http::Request, http::Responder out) { begin(std::move(out), 8); });
    thread_ = Thread("bench-http", [this] { server_->run(); });
    std::promise<CpuClock> clock;
    server_->post([&clock] { clock.set_value(CpuClock::of_this_thread()); });
    clock_ = clock.get_future().get();
  }
  ~Transport() {
    server_->stop(std::chrono::milliseconds(0));
    thread_.join();
  }

  std::uint16_t port() const { return server_->port(); }
  double cpu_us() const { return clock_.now_us(); }

 private:
  struct Stream {
    http::Responder out;
    int left;
    int per_turn;
  };

  void begin(http::Responder out, int per_turn) {
    out.start_stream(200, "text/event-stream");
    streams_.push_back({std::move(out), kEventsPerStream, per_turn});
    if (streams_.size() == 1) server_->post([this] { step(); });
  }
  // As a scheduler's step would: every stream gets its new events, then the next turn comes.
  void step() {
    for (Stream& stream : streams_) {
      for (int i = 0; i < stream.per_turn; ++i) stream.out.write(std::string(kEvent));
      stream.left -= stream.per_turn;
      if (stream.left == 0) stream.out.end();
    }
    std::erase_if(streams_, [](const Stream& stream) { return stream.left == 0; });
    if (!streams_.empty()) server_->post([this] { step(); });
  }

  std::unique_ptr<http::Server> server_;
  std::vector<Stream> streams_;  // I/O thread
  CpuClock clock_;
  Thread thread_;
};

// One row: a load, whose processor time, and what a sample is divided by.
struct Row {
  const char* name;
  std::unique_ptr<KeepBusy> load;
  std::function<double()> cpu_us;
  int requests;  // of one sample
  int units_per_request;
  std::vector<double> samples;

  void measure() {
    const double before = cpu_us();
    const int done = load->run(requests);
    samples.push_back((cpu_us() - before) / (done * units_per_request));
  }
};

std::string chat(int tokens) {
  return R"({"model":"scripted","stream":true,"ignore_eos":true,"max_tokens":)" + std::to_string(tokens) +
         R"(,"messages":[{"role":"system","content":"You are a helpful assistant."},)"
         R"({"role":"user","content":"Name three things that float on water, and say why."}]})";
}

// Ordinary words, over and over.
ScriptedServer::Script words(const text::Tokenizer& tokenizer) {
  return
      [ids = tokenizer.encode(" a word of many that float on the water", {false, false})](
          std::uint64_t seed, std::int32_t position) { return ids[static_cast<std::size_t>(position) % ids.size()]; };
}

class HttpBench {
 public:
  HttpBench(std::unique_ptr<http::Server> server, std::unique_ptr<ScriptedServer> whole)
      : epoll_(kEvent, kEventsPerStream), transport_(std::move(server)), whole_(std::move(whole)) {
    const auto epoll = [this] { return epoll_.cpu_us(); };
    const auto transport = [this] { return transport_.cpu_us(); };
    const auto io = [this] { return whole_->io_clock().now_us(); };
    // The load runs on this thread; every other one is the server's, or asleep.
    const auto all = [self = CpuClock::of_this_thread()] {
      return CpuClock::of_the_process().now_us() - self.now_us();
    };
    add("epoll_hello", epoll_.port(), get_request("/hello"), kAnswerEnd, epoll, 5000, 1);
    add("hello", transport_.port(), get_request("/hello"), kAnswerEnd, transport, 5000, 1);
    add("health", whole_->port(), get_request("/health"), kAnswerEnd, io, 5000, 1);
    add("epoll_sse", epoll_.port(), get_request("/sse"), kStreamEnd, epoll, 160, kEventsPerStream);
    add("epoll_sse_turns", epoll_.port(), get_request("/turns"), kStreamEnd, epoll, 160, kEventsPerStream);
    add("sse", transport_.port(), get_request("/sse"), kStreamEnd, transport, 160, kEventsPerStream);
    add("epoll_sse_x8", epoll_.port(), get_request("/sse8"), kStreamEnd, epoll, 160, kEventsPerStream);
    add("sse_x8", transport_.port(), get_request("/sse8"), kStreamEnd, transport, 160, kEventsPerStream);
    const auto stream = [](int tokens) { return post_request("/v1/chat/completions", chat(tokens)); };
    add("chat_first_token", whole_->port(), stream(1), kStreamEnd, all, 1600, 1);
    add("chat_event", whole_->port(), stream(kEventsPerStream), kStreamEnd, all, 160, kEventsPerStream);
    add("chat_event_io", whole_->port(), stream(kEventsPerStream), kStreamEnd, io, 160, kEventsPerStream);
  }

  std::vector<Case> run(int samples) {
    for (Row& row : rows_) row.load->run(row.requests / 5);
    for (int i = 0; i < samples; ++i) {
      for (Row& row : rows_) row.measure();
    }
    std::vector<Case> cases;
    for (Row& row : rows_) cases.push_back(summarize_us(row.name, std::move(row.samples)));
    return cases;
  }

 private:
  void add(const char* name, std::uint16_t port, std::string request, const char* end, std::function<double()> cpu_us,
           int requests, int units) {
    rows_.push_back(
        {name, std::make_unique<KeepBusy>(port, std::move(request), end), std::move(cpu_us), requests, units, {}});
  }

  BareEpoll epoll_;
  Transport transport_;
  std::unique_ptr<ScriptedServer> whole_;
  std::vector<Row> rows_;
};

}  // namespace

Result<std::vector<Case>> run_http_bench(double scale, const text::Tokenizer& tokenizer,
                                         const text::ChatTemplate& chat_template) {
  Metrics metrics;
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<http::Server> server, http::Server::listen({.port = 0}, metrics));
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<ScriptedServer> whole,
                          ScriptedServer::start({tokenizer, chat_template, words(tokenizer)}));
  return HttpBench(std::move(server), std::move(whole)).run(std::max(3, static_cast<int>(20 * scale)));
}

}  // namespace levada::bench
