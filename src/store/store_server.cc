#include "store/store_server.h"

#include <algorithm>

#include "store/endpoint.h"

namespace levada::store {
namespace {

// A reader's slots are cleared without a word: while somebody waits for space, look again this often.
constexpr std::int64_t kWaitingTurnUs = 2'000;

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(Arena& arena, const ServerOptions& options) {
  if (options.tcp_url.empty() && options.shm_url.empty() && options.ucx_url.empty())
    return invalid_argument("a store needs an address to listen at", "store_url");
  if (!(options.tcp_url.empty() && options.ucx_url.empty()) && options.token.empty())
    return invalid_argument("a store that listens at a network needs a token", "token");
  std::unique_ptr<StoreServer> server(new StoreServer(arena, options));
  LEVADA_ASSIGN_OR_RETURN(server->events_, EventSet::create());
  if (!options.tcp_url.empty()) LEVADA_RETURN_IF_ERROR(server->listen(options.tcp_url, server->tcp_url_));
  if (!options.shm_url.empty()) LEVADA_RETURN_IF_ERROR(server->listen(options.shm_url, server->shm_url_));
  if (!options.ucx_url.empty()) LEVADA_RETURN_IF_ERROR(server->listen(options.ucx_url, server->ucx_url_));
  arena.on_space(server->events_->waker());
  server->thread_ = Thread("store", [server = server.get()] { server->run(); });
  return server;
}

StoreServer::StoreServer(Arena& arena, const ServerOptions& options) : arena_(arena), options_(options) {}

StoreServer::~StoreServer() { stop(); }

Status StoreServer::listen(const std::string& url, std::string& bound_url) {
  LEVADA_ASSIGN_OR_RETURN(Endpoint endpoint, parse_endpoint(url));
  const bool shares_memory = endpoint.is_local();
  if (shares_memory && (endpoint.kind == Endpoint::Kind::kNvlink) != (arena_.device() != nullptr)) {
    return invalid_argument("shm:// shares an arena in host memory, nvlink:// one on a device; this one is " +
                                (arena_.device() != nullptr ? "on " + arena_.device()->name() : "in host memory"),
                            "store_shm_url");
  }
  LEVADA_ASSIGN_OR_RETURN(Fd socket, listen_at(endpoint));
  if (!shares_memory) endpoint.port = bound_port(socket);
  bound_url = endpoint.url();
  if (!events_->watch(socket.get(), EPOLLIN)) return unavailable("the system watches no more descriptors");
  const bool over_ucx = endpoint.kind == Endpoint::Kind::kUcx;
  if (over_ucx) LEVADA_RETURN_IF_ERROR(open_ucx(socket));
  listeners_.push_back({std::move(socket), shares_memory, over_ucx ? &*ucx_ : nullptr});
  return {};
}

// UCX listens at the same address, at a port of its own.
Status StoreServer::open_ucx(const Fd& listener) {
  UcxPortOptions port{.clock = arena_.clock()};
  port.address.length = sizeof port.address.address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&port.address.address), &port.address.length);
  port.address.set_port(0);
  if (arena_.device() == nullptr) port.memory = arena_.data();
  port.most_peers = static_cast<std::size_t>(options_.max_connections);
  ucx_.emplace();
  ucx_->desk = std::make_unique<ArenaDesk>(arena_, stats_);
  LEVADA_ASSIGN_OR_RETURN(ucx_->port, open_ucx_port(port, *ucx_->desk));
  return {};
}

void StoreServer::stop() {
  stopping_.store(true);
  if (events_) events_->wake();
  thread_.join();
  clients_.clear();
  if (!listeners_.empty() && !shm_url_.empty()) ::unlink(parse_endpoint(shm_url_)->path.c_str());
  listeners_.clear();
  if (ucx_) ucx_->port.reset();
}

void StoreServer::run() {
  while (!stopping_.load()) {
    const std::int64_t now_us = arena_.clock().now_us();
    events_->wait(next_turn_us(now_us), now_us,
                  [this](int descriptor, std::uint32_t events) { on_event(descriptor, events); });
    serve_waiting();
    serve_deadlines();
  }
}

void StoreServer::on_event(int descriptor, std::uint32_t events) {
  for (const Listener& listener : listeners_)
    if (listener.socket.get() == descriptor) return accept_from(listener);
  const auto client = clients_.find(descriptor);
  if (client == clients_.end()) return;
  ServerConnection& connection = *client->second.connection;
  bool alive = (events & EPOLLERR) == 0;
  // Nobody reads while a put waits for space, so that a hang-up shows in no other way.
  if (alive && connection.waits_for_space()) alive = (events & (EPOLLRDHUP | EPOLLHUP)) == 0;
  if (alive && connection.wants_to_write() && (events & (EPOLLOUT | EPOLLHUP)) != 0) alive = connection.on_writable();
  if (alive && connection.wants_to_read() && (events & (EPOLLIN | EPOLLHUP)) != 0) alive = connection.on_readable();
  settle(descriptor, alive);
}

void StoreServer::accept_from(const Listener& listener) {
  bool turned_away = false;
  Fd socket = acceptor_.accept(listener.socket, turned_away);
  if (turned_away) stats_.refused_full.fetch_add(1);
  if (!socket.valid()) return;
  if (clients_.size() >= static_cast<std::size_t>(options_.max_connections)) {
    stats_.refused_full.fetch_add(1);
    return;
  }
  stats_.accepted.fetch_add(1);
  const int descriptor = socket.get();
  Client& client = clients_[descriptor];
  client.connection = std::make_unique<ServerConnection>(std::move(socket), listener.shares_memory, arena_, options_,
                                                         stats_, listener.ucx);
  client.interest = EPOLLIN;
  if (!events_->watch(descriptor, client.interest)) settle(descriptor, false);
}

// After anything happened to a client: closed, or watched for what it needs next.
void StoreServer::settle(int descriptor, bool alive) {
  const auto client = clients_.find(descriptor);
  if (!alive) {
    clients_.erase(client);  // closing takes it out of epoll too
    stats_.closed.fetch_add(1);
    return;
  }
  const ServerConnection& connection = *client->second.connection;
  const std::uint32_t wanted = connection.waits_for_space()  ? EPOLLRDHUP
                               : connection.wants_to_write() ? EPOLLOUT
                                                             : EPOLLIN;
  if (wanted == client->second.interest) return;
  client->second.interest = wanted;
  events_->change(descriptor, wanted);
}

void StoreServer::serve_waiting() {
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto [descriptor, connection] = std::pair(at->first, at->second.connection.get());
    ++at;
    if (connection->waits_for_space()) settle(descriptor, connection->on_space());
  }
}

void StoreServer::serve_deadlines() {
  const std::int64_t now_us = arena_.clock().now_us();
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto [descriptor, connection] = std::pair(at->first, at->second.connection.get());
    ++at;
    if (now_us >= connection->deadline_us()) settle(descriptor, connection->on_time(now_us));
  }
}

std::int64_t StoreServer::next_turn_us(std::int64_t now_us) const {
  std::int64_t next_us = EventSet::kNever;
  for (const auto& [descriptor, client] : clients_) {
    if (client.connection->waits_for_space()) return now_us + kWaitingTurnUs;
    next_us = std::min(next_us, client.connection->deadline_us());
  }
  return next_us;
}

}  // namespace levada::store
