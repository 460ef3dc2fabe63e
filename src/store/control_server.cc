#include "store/control_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"
#include "store/endpoint.h"

namespace levada::store {
namespace {

constexpr std::int64_t kNoDeadline = EventSet::kNever;
constexpr std::size_t kReadBytes = 64 * 1024;

// A peer whose machine vanished is noticed after two minutes.
void keep_alive(const Fd& socket) {
  const int on = 1, idle_s = 60, between_s = 15, probes = 4;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

Result<Endpoint> endpoint_of(const std::string& url) {
  const Result<Endpoint> endpoint = parse_endpoint(url);
  const auto bad = [&](const std::string& why) {
    return invalid_argument("the control channel is at tcp://host:port, got '" + url + "': " + why,
                            "store_control_url");
  };
  if (!endpoint.ok()) return bad(endpoint.status().message());
  if (endpoint->kind != Endpoint::Kind::kTcp) return bad("it is TCP alone");
  if (endpoint->host == "0.0.0.0" || endpoint->host == "::")
    return bad("replies name this host to consumers, so it must be an address that they can reach");
  return *endpoint;
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::start(Arena& arena, ControlOptions options) {
  LEVADA_CHECK(options.orphan_us == 0 || options.keys_of_run, "whose keys are removed?");
  std::unique_ptr<ControlServer> server(new ControlServer(arena, std::move(options)));
  LEVADA_RETURN_IF_ERROR(server->listen());
  server->thread_ = Thread("store-control", [server = server.get()] { server->run(); });
  return server;
}

ControlServer::ControlServer(Arena& arena, ControlOptions options) : arena_(arena), options_(std::move(options)) {}

ControlServer::~ControlServer() {
  stopping_.store(true);
  if (events_) events_->wake();
  thread_.join();
}

Status ControlServer::listen() {
  LEVADA_ASSIGN_OR_RETURN(Endpoint endpoint, endpoint_of(options_.url));
  LEVADA_ASSIGN_OR_RETURN(listener_, listen_at(endpoint));
  endpoint.port = bound_port(listener_);
  address_ = endpoint.url().substr(std::string_view("tcp://").size());
  LEVADA_ASSIGN_OR_RETURN(events_, EventSet::create());
  if (events_->watch(listener_.get(), EPOLLIN)) return {};
  return unavailable("the system watches no more descriptors");
}

void ControlServer::run() {
  const auto on_any = [this](int descriptor, std::uint32_t events) {
    if (descriptor == listener_.get()) accept();
    const auto client = clients_.find(descriptor);
    if (client != clients_.end()) settle(descriptor, on_event(client->second, events));
  };
  while (!stopping_.load()) {
    events_->wait(next_turn_us(), arena_.clock().now_us(), on_any);
    serve_deadlines();
  }
}

void ControlServer::accept() {
  bool turned_away = false;
  Fd socket = acceptor_.accept(listener_, turned_away);
  const bool full = socket.valid() && clients_.size() >= options_.max_connections;
  if (turned_away || full) stats_.refused_full.fetch_add(1);
  if (!socket.valid() || full) return;
  stats_.accepted.fetch_add(1);
  keep_alive(socket);
  const int descriptor = socket.get();
  clients_[descriptor] = {std::move(socket), std::make_unique<ControlPeer>(arena_, options_.terms, stats_), kNoDeadline,
                          EPOLLIN, 0};
  if (!events_->watch(descriptor, EPOLLIN)) close(descriptor);
}

bool ControlServer::on_event(Client& client, std::uint32_t events) {
  if ((events & EPOLLERR) != 0) return false;
  // Who doesn't take its answers isn't read from: they would pile up.
  if (!client.peer->answers().empty()) return send(client);
  return read(client) && send(client);
}

bool ControlServer::read(Client& client) {
  char bytes[kReadBytes];
  const long got = ::recv(client.socket.get(), bytes, sizeof bytes, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const bool was_anonymous = client.peer->run().empty();
  const bool good = client.peer->take({bytes, static_cast<std::size_t>(got)});
  if (was_anonymous && !client.peer->run().empty()) ++runs_[client.peer->run()].peers;
  return good;
}

bool ControlServer::send(Client& client) {
  std::string& answers = client.peer->answers();
  if (answers.empty()) return true;
  const long sent = ::send(client.socket.get(), answers.data(), answers.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  answers.erase(0, static_cast<std::size_t>(sent));
  return true;
}

// After anything happened to a client: closed, or watched for what it needs next, and for how long.
void ControlServer::settle(int descriptor, bool alive) {
  if (!alive) return close(descriptor);
  Client& client = clients_.at(descriptor);
  const bool answering = !client.peer->answers().empty();
  if (!answering && !client.peer->has_partial_line()) {
    client.deadline_us = kNoDeadline;
  } else if (client.deadline_us == kNoDeadline || client.lines != client.peer->lines()) {
    client.lines = client.peer->lines();
    client.deadline_us = arena_.clock().now_us() + options_.line_us;
  }
  const std::uint32_t wanted = answering ? EPOLLOUT : EPOLLIN;
  if (wanted != client.interest) events_->change(descriptor, client.interest = wanted);
}

void ControlServer::close(int descriptor) {
  const auto client = clients_.find(descriptor);
  const auto run = runs_.find(client->second.peer->run());
  if (run != runs_.end() && --run->second.peers == 0) {
    run->second.orphan_us = arena_.clock().now_us() + options_.orphan_us;
    if (options_.orphan_us == 0) runs_.erase(run);
  }
  clients_.erase(client);  // closing takes it out of epoll too
  stats_.closed.fetch_add(1);
}

void ControlServer::serve_deadlines() {
  const std::int64_t now_us = arena_.clock().now_us();
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto& [descriptor, client] = *at++;
    if (now_us < client.deadline_us) continue;
    stats_.timeouts.fetch_add(1);
    close(descriptor);
  }
  remove_orphans(now_us);
}

void ControlServer::remove_orphans(std::int64_t now_us) {
  for (auto at = runs_.begin(); at != runs_.end();) {
    const auto& [name, run] = *at;
    if (run.peers > 0 || now_us < run.orphan_us) {
      ++at;
      continue;
    }
    const RemovedCount removed = arena_.remove_prefix(options_.keys_of_run(name));
    stats_.orphans.fetch_add(removed.freed + removed.still_read);
    LEVADA_LOG_WARNING("no consumer of run ", name, " came back: its ", removed.freed + removed.still_read,
                       " objects are removed");
    at = runs_.erase(at);
  }
}

std::int64_t ControlServer::next_turn_us() const {
  std::int64_t next_us = kNoDeadline;
  for (const auto& [descriptor, client] : clients_) next_us = std::min(next_us, client.deadline_us);
  for (const auto& [name, run] : runs_)
    if (run.peers == 0) next_us = std::min(next_us, run.orphan_us);
  return next_us;
}

}  // namespace levada::store
