#include "store/ucx_store.h"

#include <cstring>

#include "base/log.h"

namespace levada::store {
namespace {

constexpr std::size_t kMostDescriptionBytes = 64 * 1024;
constexpr std::uint64_t kLeasePerTimeout = 2;  // so that a lease outlives the longest read

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
  LEVADA_RETURN_IF_ERROR(store->channel().connect());
  LEVADA_RETURN_IF_ERROR(store->open_reader());
  return store;
}

Status UcxStore::open_reader() {
  reader_.reset();
  const std::uint64_t connection = connections_.load();
  std::string description;
  for (;;) {
    LEVADA_ASSIGN_OR_RETURN(const ClientChannel::Reply reply,
                            channel().call({.op = Op::kMemory, .first = description.size()}));
    LEVADA_RETURN_IF_ERROR(reply.status);
    if (reply.frame.first > kMostDescriptionBytes || reply.text.empty())
      return data_loss("the store's description of its memory is damaged");
    description += reply.text;
    if (description.size() >= reply.frame.first) break;
  }
  if (connection != connections_.load()) return unavailable("the store hung up while it described its memory");
  LEVADA_ASSIGN_OR_RETURN(reader_, UcxReader::open(description, channel().endpoint().host));
  reader_connection_ = connection;
  return {};
}

Result<ObjectInfo> UcxStore::get_into(std::string_view key, std::span<std::byte> destination,
                                      std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  std::lock_guard lock(mutex_);
  for (int round = 0; round < 2; ++round) {
    LEVADA_ASSIGN_OR_RETURN(const std::optional<ObjectInfo> info, try_get(key, destination, incarnation));
    if (info) return *info;
  }
  return unavailable("the store at " + channel().endpoint().url() + " hung up, twice");
}

Result<std::optional<ObjectInfo>> UcxStore::try_get(std::string_view key, std::span<std::byte> destination,
                                                    std::uint64_t incarnation) {
  const std::optional<ObjectInfo> again;
  LEVADA_RETURN_IF_ERROR(channel().connect());
  if (reader_ == nullptr || reader_connection_ != connections_.load()) LEVADA_RETURN_IF_ERROR(open_reader());
  const std::int64_t deadline_us = clock_.now_us() + options_.timeout_us;
  LEVADA_ASSIGN_OR_RETURN(const ClientChannel::Reply reply,
                          channel().call({.op = Op::kLocate,
                                          .text = key,
                                          .first = kLeasePerTimeout * static_cast<std::uint64_t>(options_.timeout_us),
                                          .incarnation = incarnation}));
  LEVADA_RETURN_IF_ERROR(reply.status);
  if (reader_connection_ != connections_.load()) return again;
  const Lease lease({reply.frame.first, reply.frame.second},
                    [this, id = reply.frame.third] { channel().tell(Op::kRelease, id); });
  if (lease.info().bytes != destination.size()) return wrong_length(key, lease.info().bytes, destination.size());
  std::uint64_t address;
  if (reply.text.size() != sizeof address)
    return data_loss("the store doesn't say where '" + std::string(key) + "' lies");
  std::memcpy(&address, reply.text.data(), sizeof address);
  const Status read = reader_->read(address, destination, deadline_us, clock_);
  // A connection that has ended took the lease with it: what was read may be another object's by now.
  if (!channel().alive()) return again;
  if (!read.ok()) {
    reader_.reset();
    return read;
  }
  announce();
  return std::optional(lease.info());
}

void UcxStore::announce() {
  if (announced_) return;
  announced_ = true;
  const std::string transports = reader_->transports();
  const std::string line = channel().endpoint().url() + ": objects are read over " + transports;
  if (transports.find("rc_") == transports.npos && transports.find("dc_") == transports.npos &&
      transports.find("cma") == transports.npos && transports.find("cuda") == transports.npos) {
    LEVADA_LOG_WARNING(line, ", not by RDMA: the server's processor copies them");
  } else {
    LEVADA_LOG_INFO(line);
  }
}

}  // namespace levada::store
