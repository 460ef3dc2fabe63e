#include "store/ucx_store.h"

#include <algorithm>

#include "base/hash.h"
#include "base/log.h"

namespace levada::store {
namespace {

// A shorter object comes with its request, in one exchange instead of three.
constexpr std::size_t kLeastBytesOverUcx = 16 * 1024;
constexpr std::int64_t kLookAtConnectionUs = 10'000;

}  // namespace

UcxStore::UcxStore(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock)
    : RemoteStore(std::move(endpoint), std::move(token), options, clock,
                  [this](const Frame&, std::vector<Fd>) {
                    connections_.fetch_add(1);
                    return Status();
                  }),
      options_(options),
      clock_(clock) {}

Result<std::unique_ptr<UcxStore>> UcxStore::open(Endpoint endpoint, std::string token, const ClientOptions& options,
                                                 const Clock& clock) {
  std::unique_ptr<UcxStore> store(new UcxStore(std::move(endpoint), std::move(token), options, clock));
  std::lock_guard lock(store->mutex_);
  LEVADA_RETURN_IF_ERROR(store->open_link(store->until(clock.now_us() + options.timeout_us)));
  return store;
}

// A dead server's connection breaks at once, whatever UCX's transport knows of it.
UcxLink::GoOn UcxStore::until(std::int64_t deadline_us) {
  return [this, deadline_us, look_us = std::int64_t{0}]() mutable {
    const std::int64_t now_us = clock_.now_us();
    if (now_us >= deadline_us) return false;
    if (now_us < look_us) return true;
    look_us = now_us + kLookAtConnectionUs;
    return channel().alive();
  };
}

Status UcxStore::open_link(const UcxLink::GoOn& go_on) {
  LEVADA_RETURN_IF_ERROR(channel().connect());
  const std::uint64_t connection = connections_.load();
  if (link_ != nullptr && !link_->broken() && link_connection_ == connection) return {};
  link_.reset();
  LEVADA_ASSIGN_OR_RETURN(const ClientChannel::Reply reply, channel().call({.op = Op::kUcxPort}));
  LEVADA_RETURN_IF_ERROR(reply.status);
  UcxAddress address;
  address.address = channel().peer(address.length);
  address.set_port(static_cast<std::uint16_t>(reply.frame.first));
  LEVADA_ASSIGN_OR_RETURN(link_, open_ucx_link(address, {reply.frame.second, reply.frame.third}, go_on));
  link_connection_ = connection;
  if (const std::string chosen = link_->transports(); std::exchange(announced_, chosen) != chosen) {
    if (falls_back_to_tcp(chosen)) {
      LEVADA_LOG_WARNING(channel().endpoint().url(), ": objects travel over ", chosen,
                         ": there is no RDMA on this way");
    } else {
      LEVADA_LOG_INFO(channel().endpoint().url(), ": objects travel over ", chosen);
    }
  }
  return {};
}

std::string UcxStore::transports() const {
  std::lock_guard lock(mutex_);
  return announced_;
}

void UcxStore::give_up() {
  link_.reset();
  channel().hang_up();
}

Result<ObjectInfo> UcxStore::get_into(std::string_view key, std::span<std::byte> destination,
                                      std::uint64_t incarnation) {
  if (destination.size() < kLeastBytesOverUcx) return RemoteStore::get_into(key, destination, incarnation);
  LEVADA_RETURN_IF_ERROR(check_key(key));
  std::lock_guard lock(mutex_);
  const std::int64_t deadline_us = clock_.now_us() + options_.timeout_us;
  Result<ObjectInfo> info = try_get(key, destination, incarnation, deadline_us);
  // A server that was restarted since the last call is found out by this one.
  if (!info.ok() && link_ == nullptr && clock_.now_us() < deadline_us)
    info = try_get(key, destination, incarnation, deadline_us);
  return info;
}

Result<ObjectInfo> UcxStore::try_get(std::string_view key, std::span<std::byte> destination, std::uint64_t incarnation,
                                     std::int64_t deadline_us) {
  const UcxLink::GoOn go_on = until(deadline_us);
  // Of twice a call's time: whatever was read before the deadline was read under the lease.
  LEVADA_ASSIGN_OR_RETURN(const ClientChannel::Reply reply,
                          channel().call({.op = Op::kLease,
                                          .text = key,
                                          .first = static_cast<std::uint64_t>(2 * options_.timeout_us),
                                          .incarnation = incarnation}));
  LEVADA_RETURN_IF_ERROR(reply.status);
  const std::uint64_t connection = connections_.load();
  const Lease lease({reply.frame.first, reply.frame.second},
                    [this, id = reply.frame.third] { channel().tell(Op::kRelease, id); });
  if (lease.info().bytes != destination.size()) return wrong_length(key, lease.info().bytes, destination.size());
  LEVADA_RETURN_IF_ERROR(open_link(go_on));
  Status read = link_->read(reply.frame.third, destination, go_on);
  // A connection that has ended took the lease with it: what was read may be another object's by now.
  if (read.ok() && !(channel().alive() && connection == connections_.load()))
    read = unavailable("the store at " + channel().endpoint().url() + " hung up");
  if (read.ok()) return lease.info();
  if (link_->broken() || read.code() == StatusCode::kUnavailable) give_up();
  return read;
}

Status UcxStore::put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) {
  if (bytes.size() < kLeastBytesOverUcx) return RemoteStore::put_from(key, bytes, options);
  LEVADA_RETURN_IF_ERROR(check_put(key, bytes.size()));
  std::lock_guard lock(mutex_);
  bool sent_again = false;
  Status put = try_put(key, bytes, options, sent_again);
  if (!put.ok() && link_ == nullptr && !sent_again) {
    sent_again = true;
    put = try_put(key, bytes, options, sent_again);
  }
  if (!sent_again || put.code() != StatusCode::kAlreadyExists) return put;
  return already_ours(key, bytes, options) ? Status() : put;
}

Status UcxStore::try_put(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options,
                         bool& sent_again) {
  LEVADA_ASSIGN_OR_RETURN(
      const ClientChannel::Reply reply,
      channel().call({.op = Op::kPlace,
                      .text = key,
                      .flags = options.checksum.has_value(),
                      .first = static_cast<std::uint64_t>(std::max<std::int64_t>(options.wait_us, 0)),
                      .second = options.checksum.value_or(0),
                      .third = bytes.size(),
                      .wait_us = options.wait_us}));
  sent_again = sent_again || reply.sent_again;
  LEVADA_RETURN_IF_ERROR(reply.status);
  const std::int64_t deadline_us = clock_.now_us() + options_.timeout_us;
  const UcxLink::GoOn go_on = until(deadline_us);
  Status opened = open_link(go_on);
  if (!opened.ok()) {
    give_up();  // and the place with it
    return opened;
  }
  const Result<ObjectInfo> info = link_->write(reply.frame.third, bytes, go_on);
  if (info.ok()) return {};
  if (link_->broken()) {
    sent_again = sent_again || clock_.now_us() >= deadline_us;
    give_up();
  }
  return info.status();
}

}  // namespace levada::store
