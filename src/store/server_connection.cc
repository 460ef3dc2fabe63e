#include "store/server_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>

#include "base/check.h"
#include "base/secret.h"
#include "store/endpoint.h"

namespace levada::store {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Of one system call. What the kernel hands over stays in the nearest caches for the hash, and the memory it came in is
// soon free for what comes next: pieces of a megabyte are a third slower.
constexpr std::uint64_t kTurnBytes = 8 * 1024 * 1024;  // of one connection before the others get their turn
// Goes out with its head in one call; a longer one would only be copied by pieces anyway.
constexpr std::size_t kSmallObjectBytes = 64 * 1024;

bool is_final(const Status& status) { return status.code() != StatusCode::kResourceExhausted; }

}  // namespace

ServerConnection::ServerConnection(Fd socket, bool shares_memory, Arena& arena, const ServerOptions& options,
                                   StoreServerStats& stats, const ServerUcx* ucx)
    : socket_(std::move(socket)),
      shares_memory_(shares_memory),
      arena_(arena),
      options_(options),
      stats_(stats),
      ucx_(ucx) {
  if (!shares_memory_) {
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    tune_on_loopback(socket_);
  }
  allow_us(options_.hello_us);
}

ServerConnection::~ServerConnection() {
  for (Arena::LeaseId id : leases_) arena_.unlease(id);
  if (ucx_ != nullptr) ucx_->desk->withdraw(this);
  if (reader_) arena_.drop_reader(reader_->id);
}

std::int64_t ServerConnection::time_for(std::uint64_t bytes) const {
  return options_.frame_us +
         static_cast<std::int64_t>(bytes / static_cast<std::uint64_t>(options_.least_bytes_per_s) * 1'000'000);
}

bool ServerConnection::go_on(Progress progress) { return progress != Progress::kBroken; }

bool ServerConnection::on_readable() {
  std::uint64_t budget = kTurnBytes;
  while (wants_to_read() && budget > 0) {
    const std::uint64_t before = body_left_;
    const Progress progress = body_left_ > 0 ? receive_body() : receive();
    if (progress == Progress::kBroken) return false;
    if (progress == Progress::kBlocked) break;
    budget -= std::min(budget, before > body_left_ ? before - body_left_ : 1);
  }
  return go_on(flush());
}

ServerConnection::Progress ServerConnection::receive() {
  const long got = ::recv(socket_.get(), in_.data() + in_bytes_, in_.size() - in_bytes_, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Progress::kBlocked : Progress::kBroken;
  if (got == 0) return Progress::kBroken;
  if (in_bytes_ == 0 && greeted_) allow_us(options_.frame_us);
  in_bytes_ += static_cast<std::size_t>(got);
  return parse_buffered() ? Progress::kDone : Progress::kBroken;
}

// Everything that is in the buffer, up to a request that has to wait. False if it is garbage.
bool ServerConnection::parse_buffered() {
  std::size_t at = 0;
  const auto rest = [&] { return std::span<const std::byte>(in_).subspan(at, in_bytes_ - at); };
  while (wants_to_read() && at < in_bytes_) {
    if (body_left_ > 0) {
      const std::size_t piece = std::min<std::uint64_t>(body_left_, in_bytes_ - at);
      take_body(rest().first(piece));
      at += piece;
      continue;
    }
    if (rest().size() < kFrameBytes) break;
    const Result<Frame> frame = decode(rest().first<kFrameBytes>());
    if (!frame.ok() || frame->reply || (!greeted_ && frame->op != Op::kHello)) {
      stats_.bad_frames.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    if (rest().size() < kFrameBytes + frame->text_bytes) break;
    const std::span<const std::byte> text = rest().subspan(kFrameBytes, frame->text_bytes);
    at += kFrameBytes + frame->text_bytes;
    begin(*frame, std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  }
  std::memmove(in_.data(), in_.data() + at, in_bytes_ - at);
  in_bytes_ -= at;
  if (state_ == State::kHeader && greeted_ && in_bytes_ == 0) deadline_us_ = kNever;
  return true;
}

void ServerConnection::begin(const Frame& request, std::string text) {
  request_ = request;
  text_ = std::move(text);
  dispatch();
}

void ServerConnection::dispatch() {
  switch (request_.op) {
    case Op::kHello: return hello();
    case Op::kPut:
    case Op::kPlace: return put();
    case Op::kUcxPort: return tell_ucx_port();
    case Op::kGet: return get();
    case Op::kLease: return lease();
    case Op::kExist: {
      const std::optional<ObjectInfo> info = arena_.find(text_);
      Frame answer{.flags = info.has_value()};
      if (info) answer.first = info->bytes, answer.second = info->checksum;
      return reply(answer);
    }
    case Op::kRemove: return reply(Frame{.flags = static_cast<std::uint8_t>(arena_.remove(text_))});
    case Op::kRemovePrefix: {
      if (text_.empty()) return reply(invalid_argument("an empty prefix would remove everything", "prefix"));
      const RemovedCount removed = arena_.remove_prefix(text_);
      return reply(Frame{.first = removed.freed, .second = removed.still_read});
    }
    case Op::kRelease:
      // Only its own: an id of another client's lease is a number like any other.
      if (std::erase(leases_, request_.first) > 0) arena_.unlease(request_.first);
      return;
  }
}

void ServerConnection::hello() {
  if (!equal_in_constant_time(text_, options_.token)) {
    stats_.bad_tokens.fetch_add(1, std::memory_order_relaxed);
    close_after_reply_ = true;
    return reply(Status(StatusCode::kUnauthenticated, "the store doesn't know this token", "token"));
  }
  greeted_ = true;
  Frame answer{.first = arena_.capacity_bytes()};
  if (shares_memory_ && !reader_) {
    Result<Arena::Reader> reader = arena_.add_reader();
    if (!reader.ok()) return reply(reader.status());
    reader_ = *reader;
    Result<Fd> memory = arena_.memory().read_only();
    if (!memory.ok()) return reply(memory.status());
    answer.third = 1;  // descriptors come along
    out_memory_ = *std::move(memory);
    if (arena_.device() != nullptr) {
      Result<Fd> device_memory = arena_.device_memory().export_descriptor();
      if (!device_memory.ok()) return reply(device_memory.status());
      answer.third = 1 + static_cast<std::uint64_t>(arena_.device_memory().share_kind());
      out_device_memory_ = *std::move(device_memory);
    }
  }
  reply(answer);
}

void ServerConnection::tell_ucx_port() {
  if (ucx_ == nullptr) return reply(Status(StatusCode::kFailedPrecondition, "this is no ucx:// address", "store_url"));
  const UcxSecret& secret = ucx_->port->secret();
  reply(Frame{.first = ucx_->port->port(), .second = secret[0], .third = secret[1]});
}

void ServerConnection::put() {
  if (request_.op == Op::kPlace && ucx_ == nullptr)
    return reply(Status(StatusCode::kFailedPrecondition, "this is no ucx:// address", "store_url"));
  stats_.puts.fetch_add(1, std::memory_order_relaxed);
  if (!turn_) turn_.emplace(arena_);
  Result<Slot> slot = arena_.try_reserve(text_, value_bytes(), *turn_);
  const std::int64_t wait_us = static_cast<std::int64_t>(
      std::min<std::uint64_t>(request_.first, static_cast<std::uint64_t>(options_.max_wait_us)));
  if (slot.ok()) {
    accept_body(*std::move(slot));
  } else if (!is_final(slot.status()) && wait_us > 0) {
    refusal_ = slot.status();
    state_ = State::kWaiting;
    allow_us(wait_us);
  } else {
    // Clients know the capacity and don't send such: what does is not worth reading to its end.
    close_after_reply_ = request_.body_bytes > arena_.capacity_bytes();
    refuse_body(slot.status());
  }
}

// The reply follows once the body is out of the way.
void ServerConnection::refuse_body(const Status& why) {
  turn_.reset();
  refusal_ = why;
  body_left_ = close_after_reply_ ? 0 : request_.body_bytes;
  if (body_left_ == 0) return reply(refusal_);
  state_ = State::kDrain;
  allow_us(time_for(body_left_));
}

bool ServerConnection::on_space() {
  if (!waits_for_space()) return true;
  Result<Slot> slot = arena_.try_reserve(text_, value_bytes(), *turn_);
  if (!slot.ok() && !is_final(slot.status())) return true;
  state_ = State::kHeader;
  if (slot.ok()) {
    accept_body(*std::move(slot));
  } else {
    refuse_body(slot.status());
  }
  // What came with the request has waited in the buffer.
  return parse_buffered() && on_readable();
}

// Host memory for a value on its way to or from a device; true if none is needed.
bool ServerConnection::stage(std::uint64_t bytes) {
  if (arena_.device() == nullptr) return true;
  staged_.reset(new (std::nothrow) std::byte[bytes]);
  return staged_ != nullptr;
}

std::span<std::byte> ServerConnection::body_place() {
  return staged_ != nullptr ? std::span(staged_.get(), slot_->bytes().size()) : slot_->bytes();
}

void ServerConnection::accept_body(Slot slot) {
  if (request_.op == Op::kPlace) {
    turn_.reset();
    const auto checksum = (request_.flags & 1) != 0 ? std::optional(request_.second) : std::nullopt;
    const auto ticket = ucx_->desk->place(std::move(slot), checksum, time_for(value_bytes()), this);
    return ticket.ok() ? reply(Frame{.third = *ticket}) : reply(ticket.status());
  }
  if (!stage(request_.body_bytes)) {
    return refuse_body(
        resource_exhausted("no memory for a value of " + std::to_string(request_.body_bytes) + " bytes"));
  }
  turn_.reset();
  slot_.emplace(std::move(slot));
  body_left_ = request_.body_bytes;
  hash_.reset();
  if ((request_.flags & 1) == 0) hash_.emplace();
  if (body_left_ == 0) return finish_body();
  state_ = State::kBody;
  allow_us(time_for(body_left_));
}

ServerConnection::Progress ServerConnection::receive_body() {
  std::byte thrown_away[16 * 1024];
  std::span<std::byte> to(thrown_away);
  if (slot_) to = body_place().subspan(request_.body_bytes - body_left_);
  const std::size_t wanted = std::min<std::uint64_t>({body_left_, to.size(), kSocketPieceBytes});
  const long got = ::recv(socket_.get(), to.data(), wanted, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Progress::kBlocked : Progress::kBroken;
  if (got == 0) return Progress::kBroken;
  take_body(to.first(static_cast<std::size_t>(got)));
  return Progress::kDone;
}

// `piece` is the next part of the body, in its place already or in the input buffer.
void ServerConnection::take_body(std::span<const std::byte> piece) {
  if (slot_) {
    std::byte* const place = body_place().data() + (request_.body_bytes - body_left_);
    if (place != piece.data()) std::memcpy(place, piece.data(), piece.size());
    if (hash_) hash_->update(piece);
  }
  body_left_ -= piece.size();
  stats_.received_bytes.fetch_add(piece.size(), std::memory_order_relaxed);
  if (body_left_ == 0) finish_body();
}

void ServerConnection::finish_body() {
  if (!slot_) return reply(std::exchange(refusal_, Status()));
  Status written;
  if (staged_ != nullptr) written = arena_.write(*slot_, body_place());
  staged_.reset();
  const Result<ObjectInfo> info =
      written.ok() ? slot_->seal(hash_ ? hash_->digest() : request_.second) : Result<ObjectInfo>(written);
  slot_.reset();
  if (!info.ok()) return reply(info.status());
  reply(Frame{.first = info->bytes, .second = info->checksum});
}

void ServerConnection::get() {
  stats_.gets.fetch_add(1, std::memory_order_relaxed);
  Result<ObjectView> view = arena_.view(text_, request_.incarnation);
  if (!view.ok()) return reply(view.status());
  if (view->bytes().size() != request_.first) return reply(wrong_length(text_, view->bytes().size(), request_.first));
  const ObjectInfo info = view->info();
  if (!stage(info.bytes)) return reply(resource_exhausted("no memory to send '" + text_ + "'"));
  if (staged_ != nullptr) {
    if (const Status read = arena_.read(*view, {staged_.get(), info.bytes}); !read.ok()) return reply(read);
  }
  sending_.emplace(*std::move(view));
  object_sent_ = 0;
  reply(Frame{.body_bytes = info.bytes, .first = info.bytes, .second = info.checksum});
}

void ServerConnection::lease() {
  if (leases_.size() >= static_cast<std::size_t>(options_.max_leases_per_client)) {
    return reply(
        resource_exhausted("a client holds at most " + std::to_string(options_.max_leases_per_client) + " leases"));
  }
  const auto ttl_us = static_cast<std::int64_t>(std::min<std::uint64_t>(request_.first, kNever));
  const auto lease = arena_.lease(text_, ttl_us, request_.incarnation);
  if (!lease.ok()) return reply(lease.status());
  leases_.push_back(lease->first);
  reply(Frame{.first = lease->second.bytes, .second = lease->second.checksum, .third = lease->first});
}

void ServerConnection::reply(const Status& error) {
  const ErrorText text = error_text(error);
  Frame frame{.status = error.code(), .field_bytes = text.field_bytes};
  text_ = text.text;
  frame.text_bytes = static_cast<std::uint16_t>(text.text.size());
  reply(frame);
}

void ServerConnection::reply(Frame frame) {
  if (frame.status == StatusCode::kOk) text_.clear();
  frame.op = request_.op;
  frame.reply = true;
  frame.id = request_.id;
  frame.incarnation = arena_.incarnation();
  const auto head = encode(frame);
  const auto text = std::as_bytes(std::span(text_));
  out_.assign(head.begin(), head.end());
  out_.insert(out_.end(), text.begin(), text.end());
  out_sent_ = 0;
  state_ = State::kReply;
  allow_us(time_for(frame.body_bytes));
}

ServerConnection::Progress ServerConnection::flush() {
  if (state_ != State::kReply) return Progress::kDone;
  if (const Progress progress = send_head(); progress != Progress::kDone) return progress;
  if (const Progress progress = send_object(); progress != Progress::kDone) return progress;
  if (close_after_reply_) {
    ::shutdown(socket_.get(), SHUT_WR);
    return Progress::kBroken;
  }
  finish_reply();
  if (!parse_buffered()) return Progress::kBroken;
  return flush();
}

std::span<const std::byte> ServerConnection::sending_bytes() const {
  if (staged_ != nullptr) return {staged_.get(), sending_->bytes().size()};
  return sending_->bytes();
}

// The head, with a small object behind it in the same call.
ServerConnection::Progress ServerConnection::send_head() {
  while (out_sent_ < out_.size()) {
    iovec parts[2] = {{out_.data() + out_sent_, out_.size() - out_sent_}, {nullptr, 0}};
    msghdr message{.msg_iov = parts, .msg_iovlen = 1};
    if (sending_ && sending_->bytes().size() < kSmallObjectBytes) {
      parts[message.msg_iovlen++] = {const_cast<std::byte*>(sending_bytes().data()), sending_->bytes().size()};
    }
    alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
    if (out_memory_.valid()) {
      const int descriptors[3] = {out_memory_.get(), reader_->slots_descriptor, out_device_memory_.get()};
      const std::size_t bytes = (out_device_memory_.valid() ? 3 : 2) * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      *header = {.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
      std::memcpy(CMSG_DATA(header), descriptors, bytes);
    }
    const bool more = sending_ && message.msg_iovlen == 1;
    const long sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (sent < 0) return errno == EAGAIN || errno == EINTR ? Progress::kBlocked : Progress::kBroken;
    out_memory_.reset();
    out_device_memory_.reset();
    const std::size_t of_head = std::min<std::size_t>(static_cast<std::size_t>(sent), out_.size() - out_sent_);
    out_sent_ += of_head;
    object_sent_ += static_cast<std::size_t>(sent) - of_head;
  }
  return Progress::kDone;
}

ServerConnection::Progress ServerConnection::send_object() {
  if (!sending_) return Progress::kDone;
  const std::span<const std::byte> object = sending_bytes();
  for (std::uint64_t turn = 0; object_sent_ < object.size() && turn < kTurnBytes;) {
    const long sent = ::send(socket_.get(), object.data() + object_sent_, object.size() - object_sent_, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR ? Progress::kBlocked : Progress::kBroken;
    object_sent_ += static_cast<std::size_t>(sent);
    turn += static_cast<std::uint64_t>(sent);
  }
  if (object_sent_ < object.size()) return Progress::kBlocked;
  stats_.sent_bytes.fetch_add(object.size(), std::memory_order_relaxed);
  return Progress::kDone;
}

void ServerConnection::finish_reply() {
  sending_.reset();
  staged_.reset();
  state_ = State::kHeader;
  deadline_us_ = in_bytes_ == 0 ? kNever : arena_.clock().now_us() + options_.frame_us;
}

bool ServerConnection::on_time(std::int64_t now_us) {
  if (now_us < deadline_us_) return true;
  if (state_ == State::kWaiting) {  // no space came
    turn_->on_timeout();
    refuse_body(Status(refusal_));
    return parse_buffered() && on_readable();
  }
  stats_.timeouts.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace levada::store
