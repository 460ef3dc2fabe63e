#include "store/endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace levada::store {
namespace {

constexpr int kBacklog = 64;

Status failed(const Endpoint& endpoint, const char* what, int error) {
  return unavailable(std::string(what) + " " + endpoint.url() + ": " + std::strerror(error));
}

Result<sockaddr_un> unix_address(const Endpoint& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.path.size() >= sizeof address.sun_path) {
    return invalid_argument("a socket's path has at most " + std::to_string(sizeof address.sun_path - 1) + " bytes, '" +
                                endpoint.path + "' has " + std::to_string(endpoint.path.size()),
                            "store_url");
  }
  std::memcpy(address.sun_path, endpoint.path.data(), endpoint.path.size());
  return address;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> resolve(const Endpoint& endpoint, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) return unavailable("looking up " + endpoint.url() + ": " + ::gai_strerror(error));
  return Addresses(list, &::freeaddrinfo);
}

// Waits until a connection under way is made; 0 or an error number.
int finish_connect(const Fd& socket, std::int64_t timeout_us) {
  pollfd state{socket.get(), POLLOUT, 0};
  const int ready = ::poll(&state, 1, static_cast<int>(timeout_us / 1000) + 1);
  if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

int try_connect(const Fd& socket, const sockaddr* address, socklen_t length, std::int64_t timeout_us) {
  if (!socket.valid()) return errno;
  if (::connect(socket.get(), address, length) == 0) return 0;
  return errno == EINPROGRESS ? finish_connect(socket, timeout_us) : errno;
}

void make_blocking(const Fd& socket) {
  int off = 0;
  ::ioctl(socket.get(), FIONBIO, &off);
}

Result<Fd> connect_shm(const Endpoint& endpoint, std::int64_t timeout_us) {
  LEVADA_ASSIGN_OR_RETURN(const sockaddr_un address, unix_address(endpoint));
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = try_connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address, timeout_us);
  if (error != 0) return failed(endpoint, "connecting to", error);
  make_blocking(socket);
  return socket;
}

// True if a socket file lies there that nobody listens at.
bool is_abandoned(const Endpoint& endpoint, const sockaddr_un& address) {
  struct stat file {};
  if (::lstat(endpoint.path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

Result<Fd> listen_shm(const Endpoint& endpoint) {
  LEVADA_ASSIGN_OR_RETURN(const sockaddr_un address, unix_address(endpoint));
  if (is_abandoned(endpoint, address)) ::unlink(endpoint.path.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return failed(endpoint, "binding", errno);
  // Whoever may connect may read every object: the owner alone.
  if (::chmod(endpoint.path.c_str(), S_IRUSR | S_IWUSR) != 0) return failed(endpoint, "guarding", errno);
  if (::listen(socket.get(), kBacklog) != 0) return failed(endpoint, "listening at", errno);
  return socket;
}

}  // namespace

std::string Endpoint::url() const {
  if (kind == Kind::kShm) return "shm://" + path;
  if (kind == Kind::kNvlink) return "nvlink://" + path;
  const bool brackets = host.find(':') != std::string::npos;
  return (kind == Kind::kUcx ? "ucx://" : "tcp://") + (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> parse_endpoint(std::string_view url) {
  const auto bad = [&](const std::string& why) {
    return invalid_argument("a store's URL is tcp://host:port, ucx://host:port, shm:///path or nvlink:///path, got '" +
                                std::string(url) + "': " + why,
                            "store_url");
  };
  Endpoint endpoint;
  for (const auto& [scheme, kind] :
       {std::pair("shm://", Endpoint::Kind::kShm), {"nvlink://", Endpoint::Kind::kNvlink}}) {
    if (!url.starts_with(scheme)) continue;
    endpoint.kind = kind;
    endpoint.path = url.substr(std::string_view(scheme).size());
    if (!endpoint.path.starts_with('/')) return bad("the path must be absolute");
    return endpoint;
  }
  if (!url.starts_with("tcp://") && !url.starts_with("ucx://")) return bad("unknown scheme");
  if (url.starts_with("ucx://")) endpoint.kind = Endpoint::Kind::kUcx;
  const std::string_view rest = url.substr(6);
  const std::size_t colon = rest.rfind(':');
  if (colon == rest.npos) return bad("no port");
  const std::string_view port = rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size()) return bad("the port must be a number up to 65535");
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return bad("no host");
  endpoint.host = host;
  return endpoint;
}

Result<Fd> connect_to(const Endpoint& endpoint, std::int64_t timeout_us) {
  if (endpoint.is_local()) return connect_shm(endpoint, timeout_us);
  LEVADA_ASSIGN_OR_RETURN(const Addresses addresses, resolve(endpoint, false));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = try_connect(socket, at->ai_addr, at->ai_addrlen, timeout_us);
    if (error != 0) continue;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    tune_on_loopback(socket);
    make_blocking(socket);
    return socket;
  }
  return failed(endpoint, "connecting to", error);
}

Result<Fd> listen_at(const Endpoint& endpoint) {
  if (endpoint.is_local()) return listen_shm(endpoint);
  LEVADA_ASSIGN_OR_RETURN(const Addresses addresses, resolve(endpoint, true));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(socket.get(), kBacklog) == 0) return socket;
    error = errno;
  }
  return failed(endpoint, "listening at", error);
}

std::uint16_t bound_port(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void set_timeouts(const Fd& socket, std::int64_t timeout_us) {
  const timeval limit{timeout_us / 1'000'000, timeout_us % 1'000'000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void tune_on_loopback(const Fd& socket) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  const bool loopback = peer.ss_family == AF_INET    ? ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                        : peer.ss_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) &&
                                                                                     v6.s6_addr[12] == IN_LOOPBACKNET)
                                                     : false;
  if (!loopback) return;
  const int bytes = 512 * 1024;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

}  // namespace levada::store
