#include "store/client_channel.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace levada::store {
namespace {

constexpr std::size_t kMostDescriptors = 4;

// The first bytes of a reply, with the descriptors that travel beside them; 0 at the end, negative on failure.
long receive_with_descriptors(const Fd& socket, std::span<std::byte> to, std::vector<Fd>& descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  iovec part{to.data(), to.size()};
  msghdr message{.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  const long got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* at = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(at) + i * sizeof(int), sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  return got;
}

}  // namespace

ClientChannel::ClientChannel(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock,
                             OnConnected on_connected)
    : endpoint_(std::move(endpoint)),
      token_(std::move(token)),
      options_(options),
      clock_(clock),
      on_connected_(std::move(on_connected)) {}

std::uint64_t ClientChannel::incarnation() const {
  std::lock_guard lock(mutex_);
  return hello_.incarnation;
}

std::uint64_t ClientChannel::capacity_bytes() const {
  std::lock_guard lock(mutex_);
  return hello_.first;
}

Status ClientChannel::connect() {
  std::lock_guard lock(mutex_);
  return socket_.valid() ? Status() : connect_locked();
}

Status ClientChannel::connect_locked() {
  if (token_.size() > kMaxTextBytes) return invalid_argument("a store's token has at most 1024 bytes", "token");
  LEVADA_ASSIGN_OR_RETURN(Fd socket, connect_to(endpoint_, options_.timeout_us));
  set_timeouts(socket, options_.timeout_us);
  deadline_us_ = clock_.now_us() + options_.timeout_us;
  std::vector<Fd> descriptors;
  LEVADA_ASSIGN_OR_RETURN(const Frame hello, exchange_hello(socket, descriptors));
  LEVADA_RETURN_IF_ERROR(on_connected_(hello, std::move(descriptors)));
  hello_ = hello;
  socket_ = std::move(socket);
  return {};
}

Result<Frame> ClientChannel::exchange_hello(const Fd& socket, std::vector<Fd>& descriptors) {
  const auto failed = [&](const char* what) { return unavailable("the store at " + endpoint_.url() + " " + what); };
  const Frame request{.op = Op::kHello, .id = next_id_++, .text_bytes = static_cast<std::uint16_t>(token_.size())};
  if (send_all(socket, encode(request), std::as_bytes(std::span(token_))) != Outcome::kDone)
    return failed("hung up on our hello");
  std::array<std::byte, kFrameBytes> head;
  const long got = receive_with_descriptors(socket, head, descriptors);
  if (got <= 0 || receive_all(socket, std::span(head).subspan(static_cast<std::size_t>(got))) != Outcome::kDone)
    return failed("did not answer our hello");
  const Result<Frame> hello = decode(head);
  if (!hello.ok() || !hello->reply || hello->op != Op::kHello || hello->id != request.id)
    return failed("is no levada store of this version");
  std::string text(hello->text_bytes, '\0');
  if (receive_all(socket, std::as_writable_bytes(std::span(text))) != Outcome::kDone)
    return failed("hung up in its hello");
  if (hello->status != StatusCode::kOk) return status_of(*hello, text);
  return *hello;
}

Result<ClientChannel::Reply> ClientChannel::call(const Request& request, std::span<std::byte> destination) {
  std::lock_guard lock(mutex_);
  Reply reply;
  std::string text;
  for (int round = 0;; ++round) {
    if (!socket_.valid()) LEVADA_RETURN_IF_ERROR(connect_locked());
    const std::int64_t limit_us = options_.timeout_us + request.wait_us;
    deadline_us_ = clock_.now_us() + limit_us;
    if (request.wait_us > 0) set_timeouts(socket_, limit_us);
    const Outcome outcome = attempt(request, destination, reply.frame, text);
    if (outcome == Outcome::kDone) break;
    socket_.reset();
    if (outcome == Outcome::kTimedOut || round == 1) return lost(outcome);
    reply.sent_again = true;
  }
  if (request.wait_us > 0) set_timeouts(socket_, options_.timeout_us);
  if (reply.frame.status != StatusCode::kOk) reply.status = status_of(reply.frame, text);
  return reply;
}

ClientChannel::Outcome ClientChannel::attempt(const Request& request, std::span<std::byte> destination, Frame& reply,
                                              std::string& text) {
  const Frame frame{.op = request.op,
                    .flags = request.flags,
                    .id = next_id_++,
                    .text_bytes = static_cast<std::uint16_t>(request.text.size()),
                    .body_bytes = request.body.size(),
                    .first = request.first,
                    .second = request.second,
                    .third = request.third,
                    .incarnation = request.incarnation};
  std::array<std::byte, kFrameBytes + kMaxTextBytes> head;
  const auto encoded = encode(frame);
  std::memcpy(head.data(), encoded.data(), kFrameBytes);
  std::ranges::copy(std::as_bytes(std::span(request.text)), head.begin() + kFrameBytes);
  if (Outcome sent = send_all(socket_, std::span(head).first(kFrameBytes + request.text.size()), request.body);
      sent != Outcome::kDone)
    return sent;

  return receive_reply(frame, destination, reply, text);
}

ClientChannel::Outcome ClientChannel::receive_reply(const Frame& request, std::span<std::byte> destination,
                                                    Frame& reply, std::string& text) {
  std::array<std::byte, kFrameBytes> answer;
  if (Outcome got = receive_all(socket_, answer); got != Outcome::kDone) return got;
  const Result<Frame> decoded = decode(answer);
  // Whatever isn't the reply to this request means that the two sides have lost step: closed, like a dead connection.
  if (!decoded.ok() || !decoded->reply || decoded->op != request.op || decoded->id != request.id)
    return Outcome::kBroken;
  reply = *decoded;
  text.resize(reply.text_bytes);
  if (Outcome got = receive_all(socket_, std::as_writable_bytes(std::span(text))); got != Outcome::kDone) return got;
  if (reply.status != StatusCode::kOk) return Outcome::kDone;
  if (reply.body_bytes != destination.size()) return Outcome::kBroken;
  return receive_all(socket_, destination);
}

Result<std::vector<ClientChannel::Reply>> ClientChannel::call_all(std::span<const Request> requests) {
  std::lock_guard lock(mutex_);
  if (!socket_.valid()) LEVADA_RETURN_IF_ERROR(connect_locked());
  deadline_us_ = clock_.now_us() + options_.timeout_us;
  std::vector<Frame> frames;
  std::vector<std::byte> out;
  for (const Request& request : requests) {
    frames.push_back({.op = request.op,
                      .flags = request.flags,
                      .id = next_id_++,
                      .text_bytes = static_cast<std::uint16_t>(request.text.size()),
                      .first = request.first,
                      .second = request.second,
                      .incarnation = request.incarnation});
    const auto head = encode(frames.back());
    const auto text = std::as_bytes(std::span(request.text));
    out.insert(out.end(), head.begin(), head.end());
    out.insert(out.end(), text.begin(), text.end());
  }
  Outcome outcome = send_all(socket_, out, {});
  std::vector<Reply> replies(requests.size());
  std::string text;
  for (std::size_t i = 0; i < replies.size() && outcome == Outcome::kDone; ++i) {
    outcome = receive_reply(frames[i], {}, replies[i].frame, text);
    if (outcome == Outcome::kDone && replies[i].frame.status != StatusCode::kOk)
      replies[i].status = status_of(replies[i].frame, text);
  }
  if (outcome == Outcome::kDone) return replies;
  socket_.reset();
  return lost(outcome);
}

ClientChannel::Outcome ClientChannel::send_all(const Fd& socket, std::span<const std::byte> head,
                                               std::span<const std::byte> body) {
  while (!head.empty() || !body.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                      {const_cast<std::byte*>(body.data()), body.size()}};
    msghdr message{.msg_iov = parts, .msg_iovlen = 2};
    const long sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN ? Outcome::kTimedOut : Outcome::kBroken;
    const std::size_t of_head = std::min<std::size_t>(static_cast<std::size_t>(sent), head.size());
    head = head.subspan(of_head);
    body = body.subspan(static_cast<std::size_t>(sent) - of_head);
    if (!(head.empty() && body.empty()) && clock_.now_us() > deadline_us_) return Outcome::kTimedOut;
  }
  return Outcome::kDone;
}

ClientChannel::Outcome ClientChannel::receive_all(const Fd& socket, std::span<std::byte> to) {
  while (!to.empty()) {
    const long got = ::recv(socket.get(), to.data(), std::min(to.size(), kSocketPieceBytes), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN ? Outcome::kTimedOut : Outcome::kBroken;
    if (got == 0) return Outcome::kBroken;
    to = to.subspan(static_cast<std::size_t>(got));
    if (!to.empty() && clock_.now_us() > deadline_us_) return Outcome::kTimedOut;
  }
  return Outcome::kDone;
}

Status ClientChannel::lost(Outcome outcome) {
  return unavailable("the store at " + endpoint_.url() +
                     (outcome == Outcome::kTimedOut ? " gave no answer in time" : " hung up, twice"));
}

void ClientChannel::tell(Op op, std::uint64_t first) {
  std::lock_guard lock(mutex_);
  if (!socket_.valid()) return;
  if (send_all(socket_, encode(Frame{.op = op, .id = next_id_++, .first = first}), {}) != Outcome::kDone)
    socket_.reset();
}

void ClientChannel::hang_up() {
  std::lock_guard lock(mutex_);
  socket_.reset();
}

sockaddr_storage ClientChannel::peer(socklen_t& length) const {
  std::lock_guard lock(mutex_);
  sockaddr_storage address{};
  length = sizeof address;
  if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) length = 0;
  return address;
}

bool ClientChannel::alive() {
  std::lock_guard lock(mutex_);
  if (!socket_.valid()) return false;
  char byte;
  const long got = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  // Between calls nothing is due, so that even a byte to read means that the two sides have lost step.
  if (got >= 0 || (errno != EAGAIN && errno != EINTR)) socket_.reset();
  return socket_.valid();
}

}  // namespace levada::store
