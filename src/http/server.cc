#include "http/server.h"

#include <malloc.h>
#include <strings.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "http/connection.h"
#include "http/listener.h"
#include "http/route_table.h"
#include "http/text.h"

namespace levada::http {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string_view bearer_token(const Request& request) {
  constexpr std::string_view kScheme = "bearer ";
  const auto header = request.headers.find("authorization");
  if (header == request.headers.end()) return {};
  const std::string_view value = header->second;
  if (value.size() < kScheme.size() || strncasecmp(value.data(), kScheme.data(), kScheme.size()) != 0) return {};
  return value.substr(kScheme.size());
}

namespace {

constexpr milliseconds kAcceptPause{100};
constexpr milliseconds kTrimPause{1000};

}  // namespace

struct Server::Impl final : Site {
  Impl(const ServerOptions& options, Metrics& metrics, std::shared_ptr<Loop> loop, asio::ip::tcp::acceptor acceptor);

  const ServerOptions& options() const override { return options_; }
  std::string_view common_lines() const override { return routes_.cors_line(); }
  RouteAnswer look_up(const Request& request) const override { return routes_.look_up(request); }
  void count_response(int status) override;
  void on_large_request_over() override { large_request_over_ = steady_clock::now(); }
  void on_closed(Connection& connection) override;

  void accept();
  void on_accepted(const error_code& error, asio::ip::tcp::socket socket);
  void turn_away(asio::ip::tcp::socket socket);
  void tick();
  void trim_heap(steady_clock::time_point now);
  void begin_stop(milliseconds grace);
  std::vector<std::shared_ptr<Connection>> open_connections() const;

  const ServerOptions options_;
  Metrics& metrics_;
  const std::shared_ptr<Loop> loop_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer tick_timer_, accept_timer_, grace_timer_;
  const std::uint16_t port_;
  RouteTable routes_;
  std::map<int, Counter*> responses_;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  std::optional<steady_clock::time_point> large_request_over_;  // since the heap was last trimmed
  bool stopping_ = false;
};

Server::Impl::Impl(const ServerOptions& options, Metrics& metrics, std::shared_ptr<Loop> loop,
                   asio::ip::tcp::acceptor acceptor)
    : options_(options),
      metrics_(metrics),
      loop_(std::move(loop)),
      acceptor_(std::move(acceptor)),
      tick_timer_(loop_->io()),
      accept_timer_(loop_->io()),
      grace_timer_(loop_->io()),
      port_(acceptor_.local_endpoint().port()),
      routes_(options.allow_origin, metrics) {}

void Server::Impl::count_response(int status) {
  Counter*& counter = responses_[status];
  if (counter == nullptr)
    counter = &metrics_.counter("sglang:http_responses_total", "HTTP responses by status; 499: the client left first.",
                                {{"status_code", std::to_string(status)}});
  counter->add();
}

// ---- Connections ----

void Server::Impl::accept() {
  acceptor_.async_accept(
      [this](const error_code& error, asio::ip::tcp::socket socket) { on_accepted(error, std::move(socket)); });
}

void Server::Impl::on_accepted(const error_code& error, asio::ip::tcp::socket socket) {
  if (!acceptor_.is_open()) return;
  if (!error) {
    if (connections_.size() >= options_.max_connections) {
      turn_away(std::move(socket));
      return accept();
    }
    auto connection = std::make_shared<Connection>(std::move(socket), loop_, *this);
    connections_.emplace(connection.get(), connection);
    connection->start();
    return accept();
  }
  // A client that left before it was accepted costs nothing. Anything else (no descriptors, no memory) lasts: trying
  // again at once would spin, and giving up would deafen the server.
  if (error == asio::error::connection_aborted) return accept();
  LEVADA_LOG_WARNING("http: cannot accept connections just now: ", error.message());
  accept_timer_.expires_after(kAcceptPause);
  accept_timer_.async_wait([this](const error_code& cancelled) {
    if (!cancelled && acceptor_.is_open()) accept();
  });
}

// Best effort: nothing is read, so that a flood of connections costs no state at all.
void Server::Impl::turn_away(asio::ip::tcp::socket socket) {
  const std::string body = error_body(503, "all of this server's " + std::to_string(options_.max_connections) +
                                               " connections are in use; try again later");
  std::string answer;
  append_head(answer, {.status = 503,
                       .content_type = "application/json",
                       .content_length = body.size(),
                       .keep_alive = false,
                       .common_lines = common_lines()});
  answer += body;
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);  // fits: the send buffer is empty
  count_response(503);
}

void Server::Impl::on_closed(Connection& connection) {
  connections_.erase(&connection);
  if (stopping_ && connections_.empty()) loop_->stop();
}

std::vector<std::shared_ptr<Connection>> Server::Impl::open_connections() const {
  std::vector<std::shared_ptr<Connection>> open;
  open.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) open.push_back(connection);
  return open;
}

void Server::Impl::tick() {
  const milliseconds shortest = std::min<milliseconds>(options_.read_timeout, options_.idle_timeout);
  tick_timer_.expires_after(std::clamp<milliseconds>(shortest / 4, milliseconds(10), milliseconds(1000)));
  tick_timer_.async_wait([this](const error_code& cancelled) {
    if (cancelled) return;
    const auto now = steady_clock::now();
    for (const auto& connection : open_connections()) connection->on_tick(now);
    trim_heap(now);
    tick();
  });
}

// The allocator keeps what large bodies took (tens of MiB) for the next ones. Once none has come for a while the system
// gets it back; after the pause, because a handler may hold the body a little longer than the exchange lasts.
void Server::Impl::trim_heap(steady_clock::time_point now) {
  if (!large_request_over_ || now - *large_request_over_ < kTrimPause) return;
  large_request_over_.reset();
  ::malloc_trim(0);
}

void Server::Impl::begin_stop(milliseconds grace) {
  stopping_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  if (connections_.empty()) return loop_->stop();
  for (const auto& connection : open_connections()) connection->drain();
  grace_timer_.expires_after(grace);
  grace_timer_.async_wait([this](const error_code& cancelled) {
    if (!cancelled) loop_->stop();
  });
}

// ---- Server ----

Result<std::unique_ptr<Server>> Server::listen(const ServerOptions& options, Metrics& metrics) {
  auto loop = std::make_shared<Loop>();
  LEVADA_ASSIGN_OR_RETURN(asio::ip::tcp::acceptor acceptor, open_listener(loop->io(), options));
  auto impl = std::make_unique<Impl>(options, metrics, std::move(loop), std::move(acceptor));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { impl_->loop_->finish(); }

void Server::route(std::string method, std::string path, Handler handler, Origins origins) {
  impl_->routes_.add(std::move(method), std::move(path), std::move(handler), origins);
}

std::vector<std::string> Server::routes() const { return impl_->routes_.names(); }

std::uint16_t Server::port() const { return impl_->port_; }

void Server::run() {
  impl_->accept();
  impl_->tick();
  impl_->loop_->run();
  // Whatever the grace did not see end is ended now, so that handlers hear of it.
  for (const auto& connection : impl_->open_connections()) connection->abort();
  impl_->loop_->finish();
}

void Server::stop(milliseconds grace) {
  impl_->loop_->post([impl = impl_.get(), grace] { impl->begin_stop(grace); });
}

void Server::post(std::function<void()> job) { impl_->loop_->post(std::move(job)); }

void Server::post_after(milliseconds delay, std::function<void()> job) {
  impl_->loop_->post_after(delay, std::move(job));
}

}  // namespace levada::http
