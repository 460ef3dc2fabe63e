#include "train/tcp_collective.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"

namespace levada::train {
namespace {

constexpr std::uint64_t kMagic = 0x314c4c4f43564cULL;  // "LVCOLL1"
constexpr std::size_t kPiece = 1 << 20;
constexpr std::int64_t kMaxWorld = 1024;

struct Hello {
  std::uint64_t magic = kMagic, rank = 0, world = 0, token = 0;
};
// What a call is; all ranks must mean the same one.
struct Call {
  std::uint64_t number = 0, bytes = 0, width = 0;
  bool operator==(const Call&) const = default;
};

std::uint64_t hash_of(const std::string& token) { return hash64(std::as_bytes(std::span(token)), kMagic); }

Status lost(const std::string& who, const char* doing) {
  const std::string why = errno == EAGAIN || errno == EWOULDBLOCK ? "no answer in time" : std::strerror(errno);
  return unavailable("collective: " + who + " is gone while " + doing + ": " + why);
}

Status send_all(int fd, const void* data, std::size_t bytes, const std::string& who) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return lost(who, "sending");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return {};
}

Status receive_all(int fd, void* data, std::size_t bytes, const std::string& who) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) return lost(who, "receiving");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

void set_limits(int fd, double seconds) {
  const int on = 1;
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_usec = static_cast<suseconds_t>((seconds - std::floor(seconds)) * 1e6);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

class TcpCollective final : public Collective {
 public:
  // peers: at rank 0 one connection per other rank, in rank order; elsewhere the one to rank 0.
  TcpCollective(std::int64_t rank, std::int64_t world, std::vector<Fd> peers)
      : rank_(rank), world_(world), peers_(std::move(peers)) {}
  std::int64_t rank() const override { return rank_; }
  std::int64_t world() const override { return world_; }
  Status all_reduce_sum(std::span<float> values) override { return reduce(values); }
  Status all_reduce_sum(std::span<double> values) override { return reduce(values); }

 private:
  template <class T>
  Status reduce(std::span<T> values) {
    if (!failed_.ok()) return failed_;
    const Call call{++calls_, values.size_bytes(), sizeof(T)};
    Status status = agree(call);
    for (std::size_t first = 0; status.ok() && first < values.size(); first += kPiece / sizeof(T)) {
      status = piece(values.subspan(first, std::min(kPiece / sizeof(T), values.size() - first)));
    }
    if (!status.ok()) {
      failed_ = status;
      peers_.clear();  // so that the others don't wait for their timeout
    }
    return status;
  }

  std::string name(std::size_t peer) const { return "rank " + std::to_string(rank_ == 0 ? peer + 1 : 0); }

  Status agree(const Call& call) {
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      Call other;
      LEVADA_RETURN_IF_ERROR(send_all(peers_[p].get(), &call, sizeof call, name(p)));
      LEVADA_RETURN_IF_ERROR(receive_all(peers_[p].get(), &other, sizeof other, name(p)));
      if (other != call) {
        return internal_error("collective: " + name(p) + " makes call " + std::to_string(other.number) + " of " +
                              std::to_string(other.bytes) + " bytes, this rank call " + std::to_string(call.number) +
                              " of " + std::to_string(call.bytes));
      }
    }
    return {};
  }

  template <class T>
  Status piece(std::span<T> values) {
    if (rank_ != 0) {
      LEVADA_RETURN_IF_ERROR(send_all(peers_[0].get(), values.data(), values.size_bytes(), name(0)));
      return receive_all(peers_[0].get(), values.data(), values.size_bytes(), name(0));
    }
    std::vector<T> theirs(values.size());
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      LEVADA_RETURN_IF_ERROR(receive_all(peers_[p].get(), theirs.data(), values.size_bytes(), name(p)));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += theirs[i];
    }
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      LEVADA_RETURN_IF_ERROR(send_all(peers_[p].get(), values.data(), values.size_bytes(), name(p)));
    }
    return {};
  }

  std::int64_t rank_, world_;
  std::vector<Fd> peers_;
  std::uint64_t calls_ = 0;
  Status failed_;
};

class Meeting {
 public:
  explicit Meeting(const TcpCollectiveOptions& options)
      : options_(options), end_us_(clock_.now_us() + static_cast<std::int64_t>(options.timeout_seconds * 1e6)) {}

  Result<std::vector<Fd>> host() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in where = address();
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 ||
        ::listen(listener.get(), 128) != 0) {
      return unavailable("collective: can't listen on " + place() + ": " + std::strerror(errno));
    }
    std::vector<Fd> peers(static_cast<std::size_t>(options_.world - 1));
    for (std::int64_t missing = options_.world - 1; missing > 0;) {
      pollfd waiting{listener.get(), POLLIN, 0};
      if (left_ms() <= 0) return unavailable("collective: " + std::to_string(missing) + " ranks didn't come");
      if (::poll(&waiting, 1, left_ms()) <= 0) continue;
      Fd guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (guest.valid() && admit(guest, peers)) --missing;
    }
    for (Fd& peer : peers) set_limits(peer.get(), options_.timeout_seconds);
    return peers;
  }

  Result<std::vector<Fd>> join() {
    const sockaddr_in where = address();
    Fd fd;
    while (true) {  // rank 0 may come later
      fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      set_limits(fd.get(), std::max(0.01, left_ms() * 1e-3));
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) break;
      if (left_ms() <= 0) return unavailable("collective: nobody listens on " + place());
      ::poll(nullptr, 0, 20);
    }
    const Hello hello{kMagic, static_cast<std::uint64_t>(options_.rank), static_cast<std::uint64_t>(options_.world),
                      hash_of(options_.token)};
    char answer = 0;
    LEVADA_RETURN_IF_ERROR(send_all(fd.get(), &hello, sizeof hello, "rank 0"));
    if (!receive_all(fd.get(), &answer, 1, "rank 0").ok() || answer != 'y') {
      return Status(StatusCode::kUnauthenticated, "collective: rank 0 refused rank " + std::to_string(options_.rank) +
                                                      ": another token, world or run");
    }
    set_limits(fd.get(), options_.timeout_seconds);
    std::vector<Fd> peers;
    peers.push_back(std::move(fd));
    return peers;
  }

 private:
  // Strangers get a second to introduce themselves, so that they can't keep the ranks away.
  bool admit(Fd& guest, std::vector<Fd>& peers) const {
    set_limits(guest.get(), 1);
    Hello hello;
    const bool known = receive_all(guest.get(), &hello, sizeof hello, "a guest").ok() && hello.magic == kMagic &&
                       hello.token == hash_of(options_.token) &&
                       hello.world == static_cast<std::uint64_t>(options_.world) && hello.rank >= 1 &&
                       hello.rank < hello.world && !peers[hello.rank - 1].valid();
    const char answer = known ? 'y' : 'n';
    if (!send_all(guest.get(), &answer, 1, "a guest").ok() || !known) return false;
    peers[hello.rank - 1] = std::move(guest);
    return true;
  }

  sockaddr_in address() const {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(options_.port);
    ::inet_pton(AF_INET, options_.host.c_str(), &where.sin_addr);
    return where;
  }
  std::string place() const { return options_.host + ":" + std::to_string(options_.port); }
  int left_ms() const { return static_cast<int>(std::max<std::int64_t>(0, (end_us_ - clock_.now_us()) / 1000)); }

  const TcpCollectiveOptions& options_;
  SystemClock clock_;
  std::int64_t end_us_;
};

}  // namespace

Result<std::unique_ptr<Collective>> open_tcp_collective(const TcpCollectiveOptions& o) {
  in_addr parsed{};
  if (o.world < 1 || o.world > kMaxWorld) return invalid_argument("collective: must be 1 to 1024", "world");
  if (o.rank < 0 || o.rank >= o.world) return invalid_argument("collective: must be below the world's size", "rank");
  if (::inet_pton(AF_INET, o.host.c_str(), &parsed) != 1) {
    return invalid_argument("collective: must be an IPv4 address, got \"" + o.host + "\"", "host");
  }
  if (!(o.timeout_seconds > 0 && o.timeout_seconds <= 86400)) {
    return invalid_argument("collective: must be above 0 and at most a day", "timeout_seconds");
  }
  std::vector<Fd> peers;
  if (o.world > 1) {
    Meeting meeting(o);
    LEVADA_ASSIGN_OR_RETURN(peers, o.rank == 0 ? meeting.host() : meeting.join());
  }
  return std::unique_ptr<Collective>(std::make_unique<TcpCollective>(o.rank, o.world, std::move(peers)));
}

}  // namespace levada::train
