#include "store/remote_store.h"

#include <algorithm>

#include "base/hash.h"

namespace levada::store {
namespace {

constexpr std::size_t kAtOnce = 32;  // requests that wait in the sockets without filling them

Result<RemoveOutcome> outcome_of(const Frame& reply) {
  if (reply.flags > static_cast<std::uint8_t>(RemoveOutcome::kAbsent))
    return data_loss("the store answers a removal with outcome " + std::to_string(reply.flags));
  return static_cast<RemoveOutcome>(reply.flags);
}

}  // namespace

RemoteStore::RemoteStore(Endpoint endpoint, std::string token, const ClientOptions& options, const Clock& clock,
                         ClientChannel::OnConnected on_connected)
    : channel_(std::move(endpoint), std::move(token), options, clock, std::move(on_connected)) {}

Result<Frame> RemoteStore::ask(const ClientChannel::Request& request, std::span<std::byte> destination) {
  LEVADA_ASSIGN_OR_RETURN(ClientChannel::Reply reply, channel_.call(request, destination));
  LEVADA_RETURN_IF_ERROR(reply.status);
  return reply.frame;
}

Result<std::optional<ObjectInfo>> RemoteStore::is_exist(std::string_view key) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_ASSIGN_OR_RETURN(const Frame reply, ask({.op = Op::kExist, .text = key}));
  if ((reply.flags & 1) == 0) return std::optional<ObjectInfo>();
  return std::optional(ObjectInfo{reply.first, reply.second});
}

Status RemoteStore::check_put(std::string_view key, std::uint64_t bytes) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_RETURN_IF_ERROR(channel_.connect());
  if (bytes <= channel_.capacity_bytes()) return {};
  return payload_too_large("object '" + std::string(key) + "' has " + std::to_string(bytes) + " bytes, the arena " +
                               std::to_string(channel_.capacity_bytes()),
                           "bytes");
}

bool RemoteStore::already_ours(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) {
  const ObjectInfo ours{bytes.size(), options.checksum ? *options.checksum : hash64(bytes)};
  const Result<std::optional<ObjectInfo>> there = is_exist(key);
  return there.ok() && *there == ours;
}

Status RemoteStore::put_from(std::string_view key, std::span<const std::byte> bytes, const PutOptions& options) {
  LEVADA_RETURN_IF_ERROR(check_put(key, bytes.size()));
  ClientChannel::Request request{.op = Op::kPut, .text = key, .body = bytes, .wait_us = options.wait_us};
  request.first = static_cast<std::uint64_t>(std::max<std::int64_t>(options.wait_us, 0));
  request.flags = options.checksum.has_value();
  request.second = options.checksum.value_or(0);
  LEVADA_ASSIGN_OR_RETURN(const ClientChannel::Reply reply, channel_.call(request));
  if (!reply.sent_again || reply.status.code() != StatusCode::kAlreadyExists) return reply.status;
  // Somebody's object has that key: ours, if the first attempt was carried out and only its reply was lost.
  return already_ours(key, bytes, options) ? Status() : reply.status;
}

Result<ObjectInfo> RemoteStore::get_into(std::string_view key, std::span<std::byte> destination,
                                         std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_ASSIGN_OR_RETURN(
      const Frame reply,
      ask({.op = Op::kGet, .text = key, .first = destination.size(), .incarnation = incarnation}, destination));
  return ObjectInfo{reply.first, reply.second};
}

Result<RemoveOutcome> RemoteStore::remove(std::string_view key) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_ASSIGN_OR_RETURN(const Frame reply, ask({.op = Op::kRemove, .text = key}));
  return outcome_of(reply);
}

Result<std::vector<RemoveOutcome>> RemoteStore::remove_all(std::span<const std::string_view> keys) {
  std::vector<RemoveOutcome> outcomes;
  while (outcomes.size() < keys.size()) {
    const auto some = keys.subspan(outcomes.size(), std::min(keys.size() - outcomes.size(), kAtOnce));
    std::vector<ClientChannel::Request> requests;
    for (const std::string_view key : some) {
      LEVADA_RETURN_IF_ERROR(check_key(key));
      requests.push_back({.op = Op::kRemove, .text = key});
    }
    const auto replies = channel_.call_all(requests);
    // A removal that was carried out already does no harm: one by one they are sent again on a new connection.
    if (!replies.ok()) {
      for (const std::string_view key : some) {
        LEVADA_ASSIGN_OR_RETURN(const RemoveOutcome outcome, remove(key));
        outcomes.push_back(outcome);
      }
      continue;
    }
    for (const ClientChannel::Reply& reply : *replies) {
      LEVADA_RETURN_IF_ERROR(reply.status);
      LEVADA_ASSIGN_OR_RETURN(const RemoveOutcome outcome, outcome_of(reply.frame));
      outcomes.push_back(outcome);
    }
  }
  return outcomes;
}

Result<RemovedCount> RemoteStore::remove_prefix(std::string_view prefix) {
  LEVADA_RETURN_IF_ERROR(check_key(prefix));
  LEVADA_ASSIGN_OR_RETURN(const Frame reply, ask({.op = Op::kRemovePrefix, .text = prefix}));
  return RemovedCount{reply.first, reply.second};
}

Result<Lease> RemoteStore::lease(std::string_view key, std::int64_t ttl_us, std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  if (ttl_us < 0) return invalid_argument("a lease's time can't be negative: " + std::to_string(ttl_us), "ttl_us");
  LEVADA_ASSIGN_OR_RETURN(
      const Frame reply,
      ask({.op = Op::kLease, .text = key, .first = static_cast<std::uint64_t>(ttl_us), .incarnation = incarnation}));
  const std::uint64_t id = reply.third;
  // A server that has gone has let go already.
  return Lease({reply.first, reply.second}, [this, id] { channel_.tell(Op::kRelease, id); });
}

}  // namespace levada::store
