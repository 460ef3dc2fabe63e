#include "store/arena_desk.h"

#include <new>

#include "base/hash.h"
#include "base/log.h"

namespace levada::store {

Result<std::uint64_t> ArenaDesk::place(Slot slot, std::optional<std::uint64_t> checksum, std::int64_t time_us,
                                       const void* connection) {
  std::unique_ptr<std::byte[]> staged;
  if (arena_.device() != nullptr) {
    staged.reset(new (std::nothrow) std::byte[slot.bytes().size()]);
    if (staged == nullptr)
      return resource_exhausted("no memory for a value of " + std::to_string(slot.bytes().size()) + " bytes");
  }
  std::vector<Places::node_type> stale;
  std::lock_guard lock(mutex_);
  stale = take_stale_locked();
  const std::uint64_t ticket = next_ticket_++;
  places_.emplace(ticket,
                  Place{std::move(slot), checksum, arena_.clock().now_us() + time_us, connection, std::move(staged)});
  return ticket;
}

std::vector<ArenaDesk::Places::node_type> ArenaDesk::take_stale_locked() {
  std::vector<Places::node_type> stale;
  const std::int64_t now_us = arena_.clock().now_us();
  for (auto at = places_.begin(); at != places_.end();) {
    const auto place = at++;
    if (place->second.receiving || (place->second.connection != nullptr && now_us < place->second.deadline_us))
      continue;
    stale.push_back(places_.extract(place));
  }
  return stale;
}

void ArenaDesk::withdraw(const void* connection) {
  std::vector<Places::node_type> stale;
  std::lock_guard lock(mutex_);
  for (auto& [ticket, place] : places_)
    if (place.connection == connection) place.connection = nullptr;
  stale = take_stale_locked();
}

Result<UcxDesk::Reading> ArenaDesk::begin_read(std::uint64_t lease) {
  stats_.gets.fetch_add(1, std::memory_order_relaxed);
  LEVADA_ASSIGN_OR_RETURN(ObjectView view, arena_.view_of(lease));
  const std::size_t bytes = view.bytes().size();
  stats_.sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
  // The lease keeps the object. If it ends while the bytes are under way, they may be another object's by the time they
  // arrive: at a client that doesn't take them any more.
  if (arena_.device() == nullptr) return Reading{view.bytes(), nullptr};
  const std::shared_ptr<std::byte[]> staged(new (std::nothrow) std::byte[bytes]);
  if (staged == nullptr) return resource_exhausted("no memory to send " + std::to_string(bytes) + " bytes");
  LEVADA_RETURN_IF_ERROR(arena_.read(view, {staged.get(), bytes}));
  return Reading{{staged.get(), bytes}, staged};
}

Result<std::span<std::byte>> ArenaDesk::begin_write(std::uint64_t ticket, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto there = places_.find(ticket);
  if (there == places_.end() || there->second.receiving || there->second.slot.bytes().size() != bytes)
    return not_found("no put of " + std::to_string(bytes) + " bytes has that ticket", "ticket");
  Place& place = there->second;
  place.receiving = true;
  return place.staged != nullptr ? std::span(place.staged.get(), bytes) : place.slot.bytes();
}

Result<ObjectInfo> ArenaDesk::end_write(std::uint64_t ticket, const Status& arrived) {
  Places::node_type ended;
  {
    std::lock_guard lock(mutex_);
    ended = places_.extract(ticket);
  }
  Place& place = ended.mapped();
  LEVADA_RETURN_IF_ERROR(arrived);
  const std::size_t bytes = place.slot.bytes().size();
  stats_.received_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (place.staged == nullptr) return place.slot.seal(place.checksum);
  const std::span<const std::byte> staged(place.staged.get(), bytes);
  LEVADA_RETURN_IF_ERROR(arena_.write(place.slot, staged));
  return place.slot.seal(place.checksum ? *place.checksum : hash64(staged));
}

bool ArenaDesk::still_writes(std::uint64_t ticket) {
  std::lock_guard lock(mutex_);
  const auto there = places_.find(ticket);
  return there != places_.end() && there->second.connection != nullptr &&
         arena_.clock().now_us() < there->second.deadline_us;
}

void ArenaDesk::sweep() {
  std::vector<Places::node_type> stale;
  std::lock_guard lock(mutex_);
  stale = take_stale_locked();
}

void ArenaDesk::on_transports(const std::string& transports) {
  {
    std::lock_guard lock(mutex_);
    if (!transports_.insert(transports).second) return;
  }
  if (falls_back_to_tcp(transports)) {
    LEVADA_LOG_WARNING("UCX: objects travel over ", transports, ": there is no RDMA on this way");
  } else {
    LEVADA_LOG_INFO("UCX: objects travel over ", transports);
  }
}

std::string ArenaDesk::transports() const {
  std::lock_guard lock(mutex_);
  std::string line;
  for (const std::string& some : transports_) line += (line.empty() ? "" : ", ") + some;
  return line;
}

}  // namespace levada::store
