#include "store/ucx/link.h"

#include <utility>

namespace levada::store::ucx {
namespace {

constexpr int kTurnMs = 5;
constexpr int kLastTurns = 40;  // for UCX to give buffers back by itself

}  // namespace

Result<std::unique_ptr<UcxLink>> Link::open(const UcxAddress& address, const UcxSecret& secret, const GoOn& go_on) {
  std::unique_ptr<Link> link(new Link(secret));
  LEVADA_RETURN_IF_ERROR(link->connect(address, go_on));
  return std::unique_ptr<UcxLink>(std::move(link));
}

Status Link::connect(const UcxAddress& address, const GoOn& go_on) {
  LEVADA_ASSIGN_OR_RETURN(context_, Context::create(address.is_loopback()));
  LEVADA_RETURN_IF_ERROR(context_->on_message(
      kBytes,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        Answer head;
        if (!read_header(header, header_bytes, head)) return UCS_OK;
        const bool by_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
        return static_cast<Link*>(self)->on_bytes(head, data, bytes, by_rendezvous);
      },
      this));
  LEVADA_RETURN_IF_ERROR(context_->on_message(
      kAnswer,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        Answer head;
        const bool is_text = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && bytes <= kMostTextBytes;
        if (is_text && read_header(header, header_bytes, head))
          static_cast<Link*>(self)->on_answer(head, {static_cast<const char*>(data), bytes});
        return UCS_OK;
      },
      this));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&address.address), address.length};
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {[](void* self, ucp_ep_h, ucs_status_t why) {
                          static_cast<Link*>(self)->lost_ = true;
                          static_cast<Link*>(self)->why_lost_ = why;
                        },
                        this};
  if (const ucs_status_t made = ucp_ep_create(context_->worker(), &params, &peer_); made != UCS_OK)
    return failed("connecting", made);
  // Nothing is under way yet: flushing waits until both sides have agreed on transports.
  ucp_request_param_t none{};
  void* const flushed = ucp_ep_flush_nbx(peer_, &none);
  const auto connecting = [&] {
    return UCS_PTR_IS_PTR(flushed) && ucp_request_check_status(flushed) == UCS_INPROGRESS;
  };
  while (connecting() && !lost_ && go_on()) context_->turn(kTurnMs);
  const bool connected = flushed == nullptr || (UCS_PTR_IS_PTR(flushed) && ucp_request_check_status(flushed) == UCS_OK);
  if (!connected || lost_) {
    take_down();
    return failed("connecting", lost_ ? why_lost_ : UCS_ERR_TIMED_OUT);
  }
  if (flushed != nullptr) ucp_request_free(flushed);
  transports_ = transports_of(peer_);
  return {};
}

Status Link::read(std::uint64_t lease, std::span<std::byte> to, const GoOn& go_on) {
  call_ = {};
  call_.to = to;
  return call(kRead, lease, {}, false, go_on).status();
}

Result<ObjectInfo> Link::write(std::uint64_t ticket, std::span<const std::byte> from, const GoOn& go_on) {
  call_ = {};
  return call(kWrite, ticket, from, true, go_on);
}

Result<ObjectInfo> Link::call(unsigned id, std::uint64_t grant, std::span<const std::byte> data, bool by_rendezvous,
                              const GoOn& go_on) {
  if (broken()) return unavailable("UCX: the way to the store is lost");
  call_.number = ++numbers_;
  wish_ = {secret_, call_.number, grant};
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = UCP_AM_SEND_FLAG_REPLY | (by_rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  params.user_data = this;
  params.cb.send = [](void* done, ucs_status_t status, void* self) {
    static_cast<Link*>(self)->call_.sending = false;
    if (status != UCS_OK) static_cast<Link*>(self)->lost_ = true, static_cast<Link*>(self)->why_lost_ = status;
    ucp_request_free(done);
  };
  void* const started = ucp_am_send_nbx(peer_, id, &wish_, sizeof wish_, data.data(), data.size(), &params);
  if (UCS_PTR_IS_ERR(started)) {
    lost_ = true, why_lost_ = UCS_PTR_STATUS(started);
  } else {
    call_.sending = started != nullptr;
  }
  const auto under_way = [&] { return !call_.answer || call_.sending; };
  while (under_way() && !lost_ && go_on()) context_->turn(kTurnMs);
  call_.number = 0;
  if (!under_way()) return *std::move(call_.answer);
  const ucs_status_t why = lost_ ? why_lost_ : UCS_ERR_TIMED_OUT;
  take_down();
  return failed("the store gives no answer", why);
}

ucs_status_t Link::on_bytes(const Answer& head, void* data, std::size_t bytes, bool by_rendezvous) {
  // What nobody waits for, or waits for no more, is thrown away.
  if (head.number != call_.number || call_.answer || call_.receiving || bytes != call_.to.size()) return UCS_OK;
  if (!by_rendezvous) {
    if (bytes > 0) std::memcpy(call_.to.data(), data, bytes);
    call_.answer = ObjectInfo{bytes, 0};
    return UCS_OK;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.user_data = this;
  params.cb.recv_am = [](void* done, ucs_status_t status, std::size_t received, void* self) {
    Link& link = *static_cast<Link*>(self);
    link.call_.receiving = false;
    if (status == UCS_OK) link.call_.answer = ObjectInfo{received, 0};
    if (status != UCS_OK) link.lost_ = true, link.why_lost_ = status;
    ucp_request_free(done);
  };
  void* const started = ucp_am_recv_data_nbx(context_->worker(), data, call_.to.data(), bytes, &params);
  if (UCS_PTR_IS_ERR(started)) {
    lost_ = true, why_lost_ = UCS_PTR_STATUS(started);
  } else {
    call_.receiving = true;
  }
  return UCS_INPROGRESS;
}

void Link::on_answer(const Answer& head, std::string_view text) {
  if (head.number != call_.number || call_.answer || call_.receiving) return;
  const auto code = static_cast<StatusCode>(head.status);
  if (head.status > static_cast<std::uint64_t>(StatusCode::kInternal)) {
    call_.answer = data_loss("the store answers with a status unknown here");
  } else if (code != StatusCode::kOk) {
    call_.answer = Status(code, std::string(text));
  } else if (call_.to.empty()) {
    call_.answer = ObjectInfo{head.bytes, head.checksum};
  } else {
    call_.answer = data_loss("the store answers a read without its bytes");
  }
}

void Link::take_down() {
  if (context_ == nullptr) return;
  call_.number = 0;
  if (peer_ != nullptr) context_->close(std::exchange(peer_, nullptr));
  for (int turn = 0; turn < kLastTurns && (call_.receiving || call_.sending); ++turn) context_->turn(kTurnMs);
  context_.reset();
}

}  // namespace levada::store::ucx
