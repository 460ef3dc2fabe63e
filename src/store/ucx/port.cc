#include "store/ucx/port.h"

#include <sys/random.h>

#include "base/secret.h"

namespace levada::store::ucx {
namespace {

constexpr int kIdleTurnMs = 1000, kBusyTurnMs = 20, kLastTurns = 50;
constexpr std::int64_t kSweepEveryUs = 50'000;
// A lease is given back as soon as the client has the bytes, which is a little before UCX here knows.
constexpr int kSweepsOfGrace = 20;
constexpr std::size_t kMostTransfers = 1024;

std::string_view text_of(const UcxSecret& secret) {
  return {reinterpret_cast<const char*>(secret.data()), sizeof secret};
}

ucp_request_param_t with_user_data(void* user) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.user_data = user;
  return params;
}

}  // namespace

Result<std::unique_ptr<UcxPort>> Port::open(const UcxPortOptions& options, UcxDesk& desk) {
  std::unique_ptr<Port> port(new Port(desk, options));
  LEVADA_RETURN_IF_ERROR(port->start(options));
  return std::unique_ptr<UcxPort>(std::move(port));
}

Status Port::start(const UcxPortOptions& options) {
  LEVADA_ASSIGN_OR_RETURN(context_, Context::create(options.address.is_loopback()));
  if (::getrandom(secret_.data(), sizeof secret_, 0) != sizeof secret_)
    return unavailable("the system gives no random numbers");
  LEVADA_RETURN_IF_ERROR(register_memory(options.memory));
  LEVADA_RETURN_IF_ERROR(context_->on_message(
      kRead,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t,
         const ucp_am_recv_param_t* param) {
        Port& port = *static_cast<Port*>(self);
        Wish wish;
        if (read_header(header, header_bytes, wish) && port.admits(wish, *param)) port.on_read(wish, param->reply_ep);
        return UCS_OK;
      },
      this));
  LEVADA_RETURN_IF_ERROR(context_->on_message(
      kWrite,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        Port& port = *static_cast<Port*>(self);
        Wish wish;
        if (!read_header(header, header_bytes, wish) || !port.admits(wish, *param)) return UCS_OK;
        return port.on_write(wish, param->reply_ep, data, bytes, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
      },
      this));
  LEVADA_RETURN_IF_ERROR(listen(options.address));
  thread_ = Thread("ucx", [this] { run(); });
  return {};
}

// So that no transfer has to register its own piece.
Status Port::register_memory(std::span<std::byte> memory) {
  if (memory.empty()) return {};
  ucp_mem_map_params_t map{};
  map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  map.address = memory.data();
  map.length = memory.size();
  const ucs_status_t mapped = ucp_mem_map(context_->context(), &map, &memory_);
  return mapped == UCS_OK ? Status() : failed("registering the arena", mapped);
}

Status Port::listen(const UcxAddress& address) {
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&address.address), address.length};
  params.conn_handler = {
      [](ucp_conn_request_h request, void* self) { static_cast<Port*>(self)->on_connection(request); }, this};
  if (const ucs_status_t made = ucp_listener_create(context_->worker(), &params, &listener_); made != UCS_OK)
    return failed("listening", made);
  ucp_listener_attr_t bound{};
  bound.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t asked = ucp_listener_query(listener_, &bound); asked != UCS_OK)
    return failed("the listener's port", asked);
  port_ = UcxAddress{bound.sockaddr, sizeof bound.sockaddr}.port();
  return {};
}

Port::~Port() {
  stopping_.store(true);
  if (thread_.joinable()) ucp_worker_signal(context_->worker());
  thread_.join();
  if (context_ == nullptr) return;
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  for (const auto& [peer, known] : peers_) failed_.push_back(peer);
  close_failed();
  for (int turn = 0; turn < kLastTurns && !transfers_.empty(); ++turn) context_->turn(kBusyTurnMs);
  if (memory_ != nullptr) ucp_mem_unmap(context_->context(), memory_);
  context_.reset();
  // Whatever UCX hasn't told the end of, it touches no more.
  for (const auto& [transfer, owned] : transfers_)
    if (transfer->kind == Transfer::Kind::kReceive)
      (void)desk_.end_write(transfer->grant, unavailable("the port ends"));
}

void Port::run() {
  while (!stopping_.load()) {
    context_->turn(transfers_.empty() ? kIdleTurnMs : kBusyTurnMs);
    sweep();
    close_failed();
  }
}

// What nobody waits for any more.
void Port::sweep() {
  const std::int64_t now_us = clock_.now_us();
  if (now_us - swept_us_ < kSweepEveryUs) return;
  swept_us_ = now_us;
  desk_.sweep();
  for (const auto& [transfer, owned] : transfers_) {
    const bool goes_on = transfer->kind == Transfer::Kind::kSend      ? desk_.still_reads(transfer->grant)
                         : transfer->kind == Transfer::Kind::kReceive ? desk_.still_writes(transfer->grant)
                                                                      : true;
    if (!goes_on && ++transfer->sweeps_unwanted > kSweepsOfGrace) fail(transfer->peer);
  }
}

// One that is closed already may have its handle used anew.
void Port::fail(ucp_ep_h peer) {
  if (peers_.contains(peer)) failed_.push_back(peer);
}

void Port::close_failed() {
  for (const ucp_ep_h peer : std::exchange(failed_, {}))
    if (peers_.erase(peer) > 0) context_->close(peer);
}

void Port::on_connection(ucp_conn_request_h request) {
  if (peers_.size() >= most_peers_) {
    ucp_listener_reject(listener_, request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {[](void* self, ucp_ep_h peer, ucs_status_t) { static_cast<Port*>(self)->fail(peer); }, this};
  ucp_ep_h peer = nullptr;
  if (ucp_ep_create(context_->worker(), &params, &peer) == UCS_OK) peers_.emplace(peer, false);
}

bool Port::admits(const Wish& wish, const ucp_am_recv_param_t& param) const {
  return (param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 && peers_.contains(param.reply_ep) &&
         equal_in_constant_time(text_of(wish.secret), text_of(secret_)) && transfers_.size() < kMostTransfers;
}

void Port::on_read(const Wish& wish, ucp_ep_h peer) {
  Result<UcxDesk::Reading> reading = desk_.begin_read(wish.grant);
  if (!reading.ok()) return answer(peer, wish.number, reading.status());
  auto transfer = std::make_unique<Transfer>(
      Transfer{*this, Transfer::Kind::kSend, peer, wish.grant, {.number = wish.number}, {}, *std::move(reading)});
  const std::span<const std::byte> bytes = transfer->reading.bytes;
  send(std::move(transfer), kBytes, bytes, !bytes.empty());
}

ucs_status_t Port::on_write(const Wish& wish, ucp_ep_h peer, void* data, std::size_t bytes, bool by_rendezvous) {
  const Result<std::span<std::byte>> place = desk_.begin_write(wish.grant, bytes);
  if (!place.ok()) {
    answer(peer, wish.number, place.status());
    return UCS_OK;
  }
  auto transfer =
      std::make_unique<Transfer>(Transfer{*this, Transfer::Kind::kReceive, peer, wish.grant, {.number = wish.number}});
  if (by_rendezvous) return receive(std::move(transfer), data, *place);
  if (bytes > 0) std::memcpy(place->data(), data, bytes);
  finish_write(*transfer, {});
  return UCS_OK;
}

ucs_status_t Port::receive(std::unique_ptr<Transfer> transfer, void* rendezvous, std::span<std::byte> place) {
  ucp_request_param_t params = with_user_data(transfer.get());
  params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv_am = [](void* done, ucs_status_t status, std::size_t, void* user) {
    auto* const ended = static_cast<Transfer*>(user);
    ucp_request_free(done);
    ended->port.finish(ended, status);
  };
  void* const started = ucp_am_recv_data_nbx(context_->worker(), rendezvous, place.data(), place.size(), &params);
  if (UCS_PTR_IS_ERR(started)) {
    finish_write(*transfer, failed("receiving", UCS_PTR_STATUS(started)));
  } else {
    Transfer* const key = transfer.get();
    transfers_.emplace(key, std::move(transfer));
  }
  return UCS_INPROGRESS;
}

void Port::send(std::unique_ptr<Transfer> transfer, unsigned id, std::span<const std::byte> bytes, bool by_rendezvous) {
  ucp_request_param_t params = with_user_data(transfer.get());
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  // By rendezvous the client fetches the bytes to their place itself.
  params.flags = by_rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = [](void* done, ucs_status_t status, void* user) {
    auto* const ended = static_cast<Transfer*>(user);
    ucp_request_free(done);
    ended->port.finish(ended, status);
  };
  void* const started = ucp_am_send_nbx(transfer->peer, id, &transfer->answer, sizeof transfer->answer, bytes.data(),
                                        bytes.size(), &params);
  if (UCS_PTR_IS_ERR(started)) {
    fail(transfer->peer);
  } else if (started != nullptr) {
    Transfer* const key = transfer.get();
    transfers_.emplace(key, std::move(transfer));
  }
}

void Port::finish(Transfer* transfer, ucs_status_t status) {
  const auto there = transfers_.find(transfer);
  const std::unique_ptr<Transfer> ended = std::move(there->second);
  transfers_.erase(there);
  if (status != UCS_OK) fail(ended->peer);
  if (ended->kind == Transfer::Kind::kReceive)
    finish_write(*ended, status == UCS_OK ? Status() : failed("receiving", status));
  if (status == UCS_OK) note_transports(ended->peer);
}

void Port::finish_write(const Transfer& transfer, const Status& arrived) {
  const Result<ObjectInfo> info = desk_.end_write(transfer.grant, arrived);
  if (arrived.ok()) answer(transfer.peer, transfer.answer.number, info);
}

void Port::answer(ucp_ep_h peer, std::uint64_t number, const Result<ObjectInfo>& result) {
  if (!peers_.contains(peer)) return;
  auto transfer = std::make_unique<Transfer>(Transfer{*this, Transfer::Kind::kAnswer, peer, 0, {.number = number}});
  transfer->answer.status = static_cast<std::uint64_t>(result.ok() ? StatusCode::kOk : result.status().code());
  if (result.ok()) transfer->answer.bytes = result->bytes, transfer->answer.checksum = result->checksum;
  if (!result.ok()) transfer->text = result.status().message().substr(0, kMostTextBytes);
  const auto text = std::as_bytes(std::span(transfer->text));
  send(std::move(transfer), kAnswer, text, false);
}

void Port::note_transports(ucp_ep_h peer) {
  const auto there = peers_.find(peer);
  if (there == peers_.end() || std::exchange(there->second, true)) return;
  desk_.on_transports(transports_of(peer));
}

}  // namespace levada::store::ucx
