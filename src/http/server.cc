#include "http/server.h"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "http/connection.h"
#include "http/listener.h"
#include "http/text.h"

namespace levada::http {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kAcceptPause{100};

struct Method {
  Handler handler;
  Counter* requests;
};

std::string cors_lines(const ServerOptions& options) {
  if (options.allow_origin.empty()) return {};
  return "Access-Control-Allow-Origin: " + options.allow_origin + "\r\n";
}

}  // namespace

struct Server::Impl final : Site {
  Impl(const ServerOptions& options, Metrics& metrics, std::shared_ptr<Loop> loop, asio::ip::tcp::acceptor acceptor);

  const ServerOptions& options() const override { return options_; }
  const std::string& common_lines() const override { return common_lines_; }
  RouteAnswer look_up(const std::string& method, const std::string& path) const override;
  void count_response(int status) override;
  void on_closed(Connection& connection) override;

  Counter& request_counter(const std::string& method, const std::string& path);
  RouteAnswer method_missing(const std::string& method, const std::map<std::string, Method>& methods) const;
  void accept();
  void on_accepted(const error_code& error, asio::ip::tcp::socket socket);
  void turn_away(asio::ip::tcp::socket socket);
  void tick();
  void begin_stop(milliseconds grace);
  std::vector<std::shared_ptr<Connection>> open_connections() const;

  const ServerOptions options_;
  const std::string common_lines_;
  Metrics& metrics_;
  const std::shared_ptr<Loop> loop_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer tick_timer_, accept_timer_, grace_timer_;
  const std::uint16_t port_;
  std::unordered_map<std::string, std::map<std::string, Method>> routes_;  // path, then method
  std::vector<std::pair<std::string, std::string>> route_names_;
  Counter& other_requests_;
  std::map<int, Counter*> responses_;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  bool stopping_ = false;
};

Server::Impl::Impl(const ServerOptions& options, Metrics& metrics, std::shared_ptr<Loop> loop,
                   asio::ip::tcp::acceptor acceptor)
    : options_(options),
      common_lines_(cors_lines(options)),
      metrics_(metrics),
      loop_(std::move(loop)),
      acceptor_(std::move(acceptor)),
      tick_timer_(loop_->io()),
      accept_timer_(loop_->io()),
      grace_timer_(loop_->io()),
      port_(acceptor_.local_endpoint().port()),
      other_requests_(request_counter("other", "other")) {}

// ---- Routes and counters ----

// Labels come from the route table alone: a client cannot make new series.
Counter& Server::Impl::request_counter(const std::string& method, const std::string& path) {
  return metrics_.counter("levada:http_requests_total", "HTTP requests by route.",
                          {{"path", path}, {"method", method}});
}

void Server::Impl::count_response(int status) {
  Counter*& counter = responses_[status];
  if (counter == nullptr)
    counter = &metrics_.counter("levada:http_responses_total", "HTTP responses by status; 499: the client left first.",
                                {{"status", std::to_string(status)}});
  counter->add();
}

RouteAnswer Server::Impl::look_up(const std::string& method, const std::string& path) const {
  const auto at_path = routes_.find(path);
  if (at_path == routes_.end()) {
    if (method == "OPTIONS" && path == "*")
      return {.status = 204, .extra_lines = "Allow: GET, HEAD, OPTIONS, POST\r\n", .requests = &other_requests_};
    return {.status = 404, .message = "there is nothing at " + path, .requests = &other_requests_};
  }
  const std::map<std::string, Method>& methods = at_path->second;
  auto found = methods.find(method);
  if (found == methods.end() && method == "HEAD") found = methods.find("GET");
  if (found == methods.end()) return method_missing(method, methods);
  return {.handler = &found->second.handler, .requests = found->second.requests};
}

RouteAnswer Server::Impl::method_missing(const std::string& method,
                                         const std::map<std::string, Method>& methods) const {
  std::string allowed = "OPTIONS";
  for (const auto& [name, ignored] : methods) allowed += ", " + name;
  if (methods.contains("GET")) allowed += ", HEAD";
  RouteAnswer answer{.extra_lines = "Allow: " + allowed + "\r\n", .requests = &other_requests_};
  if (method == "OPTIONS") {
    answer.status = 204;
    if (!common_lines_.empty())
      answer.extra_lines += "Access-Control-Allow-Methods: " + allowed +
                            "\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, *\r\n";
  } else {
    answer.status = 405;
    answer.message = "the method " + method + " is not allowed here; use " + allowed;
  }
  return answer;
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
                       .common_lines = common_lines_});
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
    tick();
  });
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

void Server::route(std::string method, std::string path, Handler handler) {
  Counter& requests = impl_->request_counter(method, path);
  const bool fresh = impl_->routes_[path].emplace(method, Method{std::move(handler), &requests}).second;
  LEVADA_CHECK(fresh, "a route was declared twice");
  impl_->route_names_.emplace_back(std::move(method), std::move(path));
}

std::vector<std::pair<std::string, std::string>> Server::routes() const { return impl_->route_names_; }

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
