#include "bench/http_bench.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "http/server.h"

namespace levada::bench {
namespace {

constexpr int kConnections = 16;
constexpr int kEventsPerStream = 200;
constexpr std::string_view kEvent =
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1764440000,"
    "\"model\":\"smollm2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";

// The server under test, with one route per case.
class Subject {
 public:
  explicit Subject(std::unique_ptr<http::Server> server) : server_(std::move(server)) {
    server_->route("GET", "/hello", [](http::Request, http::Responder out) {
      out.respond(200, "application/json", "{\"hello\":\"world\"}");
    });
    server_->route("GET", "/sse", [this](http::Request, http::Responder out) { begin(std::move(out), 1); });
    server_->route("GET", "/sse8", [this](http::Request, http::Responder out) { begin(std::move(out), 8); });
    thread_ = Thread("bench-http", [this] { server_->run(); });
  }
  ~Subject() {
    server_->stop(std::chrono::milliseconds(0));
    thread_.join();
  }

  std::uint16_t port() const { return server_->port(); }
  double cpu_us() {
    std::promise<double> spent;
    server_->post([&] {
      timespec now{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      spent.set_value(static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3);
    });
    return spent.get_future().get();
  }

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
  Thread thread_;
};

// Keeps every connection busy with one request after the other.
class Load {
 public:
  Load(std::uint16_t port, std::string_view path, std::string_view last_bytes)
      : request_("GET " + std::string(path) + " HTTP/1.1\r\nHost: bench\r\n\r\n"),
        last_bytes_(last_bytes),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (std::uint32_t i = 0; i < kConnections; ++i) {
      sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int on = 1, fd = sockets_.back().get();
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      LEVADA_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "loopback refused us");
      epoll_event event{.events = EPOLLIN, .data = {.u32 = i}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
    }
  }

  // Requests answered in full, at least `count`; none is under way afterwards.
  int run(int count) {
    int begun = 0, done = 0;
    for (; begun < kConnections; ++begun) begin(static_cast<std::uint32_t>(begun));
    while (done < begun) {
      epoll_event events[kConnections];
      const int ready = ::epoll_wait(epoll_.get(), events, kConnections, 10'000);
      LEVADA_CHECK(ready > 0, "the server under test hangs");
      for (int i = 0; i < ready; ++i) {
        if (!receive(events[i].data.u32)) continue;
        ++done;
        if (begun < count) {
          begin(events[i].data.u32);
          ++begun;
        }
      }
    }
    return done;
  }

 private:
  void begin(std::uint32_t index) {
    const long sent = ::send(sockets_[index].get(), request_.data(), request_.size(), MSG_NOSIGNAL);
    LEVADA_CHECK(sent == static_cast<long>(request_.size()), "a short request was not taken whole");
  }
  bool receive(std::uint32_t index) {
    const long got = ::recv(sockets_[index].get(), buffer_, sizeof buffer_, 0);
    LEVADA_CHECK(got > 0, "the server under test closed");
    return std::string_view(buffer_, static_cast<std::size_t>(got)).ends_with(last_bytes_);
  }

  std::string request_, last_bytes_;
  Fd epoll_;
  std::vector<Fd> sockets_;
  char buffer_[256 * 1024];
};

struct Kind {
  const char* name;
  const char* path;
  const char* last_bytes;
  int requests;  // of one sample
  int units_per_request;
};

}  // namespace

Result<std::vector<Case>> run_http_bench(double scale) {
  Metrics metrics;
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<http::Server> server, http::Server::listen({.port = 0}, metrics));
  Subject subject(std::move(server));
  std::vector<Case> cases;
  for (const Kind& kind :
       {Kind{"hello_16c", "/hello", "\"}", 5000, 1}, Kind{"sse_16c", "/sse", "0\r\n\r\n", 160, kEventsPerStream},
        Kind{"sse_16c_x8", "/sse8", "0\r\n\r\n", 160, kEventsPerStream}}) {
    const auto load = std::make_unique<Load>(subject.port(), kind.path, kind.last_bytes);
    load->run(kind.requests / 5);
    std::vector<double> samples;
    for (int i = 0; i < std::max(3, static_cast<int>(20 * scale)); ++i) {
      const double before = subject.cpu_us();
      const int done = load->run(kind.requests);
      samples.push_back((subject.cpu_us() - before) / (done * kind.units_per_request));
    }
    cases.push_back(summarize_us(kind.name, std::move(samples)));
  }
  return cases;
}

}  // namespace levada::bench
