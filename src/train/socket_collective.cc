#include "train/socket_collective.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace levada::train {
namespace {

constexpr std::size_t kPiece = 1 << 20;

// What a call is; both sides must mean the same one.
struct Call {
  std::uint64_t bytes = 0, width = 0;  // width 0: bytes that are given
  bool operator==(const Call&) const = default;
};

Status gone(const std::string& who) { return unavailable(who + " of this trainer is gone: " + std::strerror(errno)); }

Status send_all(int fd, const void* data, std::size_t bytes, const std::string& who) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return gone(who);
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return {};
}

// `ended`, where it is given: set instead of a failure if nothing at all came before the end.
Status receive_all(int fd, void* data, std::size_t bytes, const std::string& who, bool* ended = nullptr) {
  auto* at = static_cast<char*>(data);
  for (std::size_t left = bytes; left > 0;) {
    const ssize_t got = ::recv(fd, at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0 && left == bytes && ended != nullptr && errno == ECONNRESET) {
      *ended = true;
      return {};
    }
    if (got <= 0) return gone(who);
    at += got;
    left -= static_cast<std::size_t>(got);
  }
  return {};
}

Status differs(const std::string& who, const Call& theirs, const Call& ours) {
  const auto text = [](const Call& call) {
    return std::to_string(call.bytes) + " bytes of width " + std::to_string(call.width);
  };
  return internal_error(who + " of this trainer makes a call of " + text(theirs) + ", this rank one of " + text(ours));
}

}  // namespace

Status SocketCollective::kept(Status status) {
  if (!status.ok()) {
    failed_ = status;
    peers_.clear();
  }
  return status;
}

Status SocketCollective::agree(std::size_t bytes, std::size_t width) {
  const Call call{bytes, width};
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Call other;
    LEVADA_RETURN_IF_ERROR(send_all(peers_[p].get(), &call, sizeof call, name(p)));
    LEVADA_RETURN_IF_ERROR(receive_all(peers_[p].get(), &other, sizeof other, name(p)));
    if (other != call) return differs(name(p), other, call);
  }
  return {};
}

template <class T>
Status SocketCollective::reduce_piece(std::span<T> values) {
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

template <class T>
Status SocketCollective::reduce(std::span<T> values) {
  LEVADA_RETURN_IF_ERROR(failed_);
  Status status = agree(values.size_bytes(), sizeof(T));
  constexpr std::size_t kValues = kPiece / sizeof(T);
  for (std::size_t first = 0; status.ok() && first < values.size(); first += kValues) {
    status = reduce_piece(values.subspan(first, std::min(kValues, values.size() - first)));
  }
  return kept(status);
}

template Status SocketCollective::reduce(std::span<float>);
template Status SocketCollective::reduce(std::span<double>);

Status SocketCollective::give_to(int fd, const std::vector<std::span<const std::byte>>& pieces,
                                 const std::string& who) {
  Call call;
  for (const auto& piece : pieces) call.bytes += piece.size();
  LEVADA_RETURN_IF_ERROR(send_all(fd, &call, sizeof call, who));
  for (const auto& piece : pieces) LEVADA_RETURN_IF_ERROR(send_all(fd, piece.data(), piece.size(), who));
  return {};
}

Status SocketCollective::give(std::int64_t rank, const std::vector<std::span<const std::byte>>& pieces) {
  LEVADA_CHECK(rank_ == 0 && rank > 0 && rank < world_, "rank 0 gives to the others");
  LEVADA_RETURN_IF_ERROR(failed_);
  const auto peer = static_cast<std::size_t>(rank - 1);
  return kept(give_to(peers_[peer].get(), pieces, name(peer)));
}

Result<std::optional<std::vector<std::byte>>> SocketCollective::take() {
  LEVADA_CHECK(rank_ > 0, "rank 0 has nobody to take from");
  LEVADA_RETURN_IF_ERROR(failed_);
  Call call;
  bool ended = false;
  LEVADA_RETURN_IF_ERROR(kept(receive_all(peers_[0].get(), &call, sizeof call, name(0), &ended)));
  if (ended) return std::optional<std::vector<std::byte>>();
  if (call.width != 0) return kept(differs(name(0), call, {}));
  std::vector<std::byte> bytes(call.bytes);
  LEVADA_RETURN_IF_ERROR(kept(receive_all(peers_[0].get(), bytes.data(), bytes.size(), name(0))));
  return std::optional(std::move(bytes));
}

}  // namespace levada::train
