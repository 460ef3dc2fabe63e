#include "store/local_store.h"

namespace levada::store {

Result<std::optional<ObjectInfo>> LocalStore::is_exist(std::string_view key) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  return arena_.find(key);
}

Result<ObjectInfo> LocalStore::get_into(std::string_view key, std::span<std::byte> destination,
                                        std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_ASSIGN_OR_RETURN(const ObjectView view, arena_.view(key, incarnation));
  if (view.bytes().size() != destination.size()) return wrong_length(key, view.bytes().size(), destination.size());
  LEVADA_RETURN_IF_ERROR(arena_.read(view, destination));
  return view.info();
}

Result<RemoveOutcome> LocalStore::remove(std::string_view key) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  return arena_.remove(key);
}

Result<RemovedCount> LocalStore::remove_prefix(std::string_view prefix) {
  LEVADA_RETURN_IF_ERROR(check_key(prefix));
  return arena_.remove_prefix(prefix);
}

Result<Lease> LocalStore::lease(std::string_view key, std::int64_t ttl_us, std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_ASSIGN_OR_RETURN(const auto granted, arena_.lease(key, ttl_us, incarnation));
  return Lease(granted.second, [arena = &arena_, id = granted.first] { arena->unlease(id); });
}

}  // namespace levada::store
