#include "http/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "http/text.h"

namespace levada::http {
namespace beast = boost::beast;
using beast::error_code;
using beast::http::error;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t kMaxHeaderBytes = 64u << 10;
constexpr std::uint64_t kMaxBodyBytes = 1u << 30;
constexpr std::size_t kReadBytes = 2 * kMaxHeaderBytes;

// Fills a ClientResponse from Beast's parser events.
class ResponseParser final : public beast::http::basic_parser<false> {
 public:
  explicit ResponseParser(const ClientRequest& request) : on_body_(request.on_body) {
    header_limit(kMaxHeaderBytes);
    // Pieces that are handed on cost nothing here, so a stream may run for ever.
    if (on_body_)
      body_limit(boost::none);
    else
      body_limit(kMaxBodyBytes);
    if (request.method == "HEAD") skip(true);
    eager(true);
  }

  ClientResponse response;
  bool stopped = false;  // by on_body

 private:
  void on_response_impl(int status, beast::string_view, int, error_code&) override { response.status = status; }
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value, error_code&) override {
    const auto [entry, fresh] =
        response.headers.try_emplace(to_lower({name.data(), name.size()}), value.data(), value.size());
    if (!fresh) entry->second.append(", ").append(value.data(), value.size());
  }
  std::size_t take(beast::string_view bytes, error_code& ec) {
    if (!on_body_) {
      response.body.append(bytes.data(), bytes.size());
    } else if (!on_body_({bytes.data(), bytes.size()})) {
      stopped = true;
      ec = error::end_of_stream;
    }
    return bytes.size();
  }
  std::size_t on_body_impl(beast::string_view bytes, error_code& ec) override { return take(bytes, ec); }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code& ec) override {
    return take(bytes, ec);
  }
  void on_request_impl(beast::http::verb, beast::string_view, beast::string_view, int, error_code&) override {}
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override {}
  void on_finish_impl(error_code&) override {}

  const std::function<bool(std::string_view)>& on_body_;
};

std::string request_text(const ClientRequest& request, const std::string& address) {
  std::string text = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + address + "\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  if (!request.body.empty() || request.method == "POST")
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text + "\r\n" + request.body;
}

}  // namespace

Result<ClientResponse> Client::get(std::string target) { return request({.target = std::move(target)}); }

Result<ClientResponse> Client::post(std::string target, std::string body) {
  return request({.method = "POST",
                  .target = std::move(target),
                  .body = std::move(body),
                  .headers = {{"Content-Type", "application/json"}}});
}

Result<ClientResponse> Client::request(const ClientRequest& request) {
  const Until until{steady_clock::now() + request.timeout};
  if (!request.stop.stop_possible()) return exchange(request, until);
  const Fd stopped(::eventfd(0, EFD_CLOEXEC));
  if (!stopped.valid()) return unavailable(std::string("no file descriptor is left: ") + std::strerror(errno));
  const std::stop_callback on_stop(request.stop, [&] { ::eventfd_write(stopped.get(), 1); });
  if (request.stop.stop_requested()) return Status(StatusCode::kAborted, "stopped");
  return exchange(request, {until.deadline, stopped.get()});
}

Result<ClientResponse> Client::exchange(const ClientRequest& request, Until until) {
  if (is_stale()) close();
  if (!socket_.valid()) {
    const Status connected = connect(until);
    if (!connected.ok()) close();
    LEVADA_RETURN_IF_ERROR(connected);
  }
  // A server may refuse and close before it has read everything: its answer counts, not our failure to send.
  const Status sent = send_all(request_text(request, address()), until);
  Result<ClientResponse> response = receive(request, until);
  if (!response.ok()) close();
  return !response.ok() && !sent.ok() ? Result<ClientResponse>(sent) : std::move(response);
}

// The server closed the kept connection meanwhile, or sent what nobody asked for.
bool Client::is_stale() const {
  pollfd state{socket_.get(), POLLIN, 0};
  return socket_.valid() && ::poll(&state, 1, 0) != 0;
}

Status Client::connect(Until until) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found); error != 0)
    return unavailable("cannot resolve " + host_ + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  int last_error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) {
      last_error = errno;
      continue;
    }
    socket_ = std::move(socket);
    if (::connect(socket_.get(), at->ai_addr, at->ai_addrlen) != 0) {
      last_error = errno;
      if (last_error == EINPROGRESS) {
        LEVADA_RETURN_IF_ERROR(wait(POLLOUT, until));
        socklen_t size = sizeof last_error;
        getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &last_error, &size);
      }
      if (last_error != 0) continue;
    }
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return Status::ok_status();
  }
  return unavailable("cannot connect to " + address() + ": " + std::strerror(last_error));
}

Status Client::wait(short events, Until until) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until.deadline - steady_clock::now()).count();
    pollfd states[] = {{socket_.get(), events, 0}, {until.stopped, POLLIN, 0}};
    const int ready = left <= 0 ? 0 : ::poll(states, 2, static_cast<int>(std::min<std::int64_t>(left, 1 << 30)));
    if (ready > 0 && states[1].revents != 0) return Status(StatusCode::kAborted, "stopped");
    if (ready > 0) return Status::ok_status();
    if (ready == 0) return unavailable(address() + " did not answer in time");
    if (errno != EINTR) return unavailable(std::string("poll failed: ") + std::strerror(errno));
  }
}

Status Client::send_all(std::string_view bytes, Until until) {
  while (!bytes.empty()) {
    const long sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      LEVADA_RETURN_IF_ERROR(wait(POLLOUT, until));
    } else if (errno != EINTR) {
      return unavailable("cannot send to " + address() + ": " + std::strerror(errno));
    }
  }
  return Status::ok_status();
}

Result<ClientResponse> Client::receive(const ClientRequest& request, Until until) {
  auto parser = std::make_unique<ResponseParser>(request);
  std::vector<char> buffer(kReadBytes);
  std::size_t held = 0;
  while (true) {
    LEVADA_ASSIGN_OR_RETURN(const std::size_t got, receive_some(buffer.data() + held, buffer.size() - held, until));
    error_code ec;
    if (got == 0) {
      if (parser->got_some()) parser->put_eof(ec);
      if (ec || !parser->got_some())
        return data_loss(address() + " closed the connection before its answer was complete");
      break;
    }
    held += got;
    while (held > 0 && !parser->is_done() && ec != error::need_more) {
      const std::size_t taken = parser->put(boost::asio::const_buffer(buffer.data(), held), ec);
      std::copy(buffer.begin() + static_cast<long>(taken), buffer.begin() + static_cast<long>(held), buffer.begin());
      held -= taken;
      if (parser->stopped) return Status(StatusCode::kAborted, "the receiver of the body ended the exchange");
      if (ec && ec != error::need_more) return data_loss(address() + " did not answer in HTTP: " + ec.message());
      // Interim answers ("100 Continue") come before the real one.
      if (parser->is_done() && parser->response.status / 100 == 1) parser = std::make_unique<ResponseParser>(request);
    }
    if (parser->is_done()) break;
    if (held == buffer.size()) return data_loss(address() + " sent a header or chunk line that is too long");
  }
  if (!parser->keep_alive()) close();
  return std::move(parser->response);
}

// Waits for at least one byte; 0 when the server has closed.
Result<std::size_t> Client::receive_some(char* into, std::size_t room, Until until) {
  while (true) {
    const long got = ::recv(socket_.get(), into, room, 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN) {
      LEVADA_RETURN_IF_ERROR(wait(POLLIN, until));
    } else if (errno != EINTR) {
      return unavailable("lost " + address() + ": " + std::strerror(errno));
    }
  }
}

}  // namespace levada::http
