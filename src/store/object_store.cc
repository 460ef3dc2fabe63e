#include "store/object_store.h"

#include <new>
#include <string>

#include "store/shared_index.h"

namespace levada::store {
namespace {

// Bytes that the view itself owns.
class CopyHold final : public ObjectView::Hold {
 public:
  explicit CopyHold(std::unique_ptr<std::byte[]> bytes) : bytes_(std::move(bytes)) {}
  bool still_valid() const override { return true; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace

Status check_capabilities(const Capabilities& capabilities) {
  std::string missing;
  const auto need = [&](bool has, const char* name) {
    if (!has) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(capabilities.is_exist, "is_exist");
  need(capabilities.put_from, "put_from");
  need(capabilities.get_into, "get_into");
  need(capabilities.remove, "remove");
  if (!missing.empty()) return {StatusCode::kFailedPrecondition, "the store backend lacks " + missing, "store"};
  if (capabilities.evictable_pins) {
    return {StatusCode::kFailedPrecondition,
            "the store backend may evict pinned objects; captured features would be lost silently", "store"};
  }
  return {};
}

Result<std::unique_ptr<ObjectStore>> accept_backend(std::unique_ptr<ObjectStore> store) {
  LEVADA_RETURN_IF_ERROR(check_capabilities(store->capabilities()));
  return store;
}

Result<ObjectView> ObjectStore::view(std::string_view key, std::uint64_t incarnation) {
  LEVADA_ASSIGN_OR_RETURN(const std::optional<ObjectInfo> there, is_exist(key));
  if (!there) return not_found("no object '" + std::string(key) + "'", "key");
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[there->bytes]);
  if (bytes == nullptr) {
    return resource_exhausted("no memory for the " + std::to_string(there->bytes) + " bytes of '" + std::string(key) +
                              "'");
  }
  const std::span<std::byte> destination(bytes.get(), there->bytes);
  LEVADA_ASSIGN_OR_RETURN(const ObjectInfo info, get_into(key, destination, incarnation));
  return ObjectView(destination, info, std::make_unique<CopyHold>(std::move(bytes)));
}

Result<std::vector<RemoveOutcome>> ObjectStore::remove_all(std::span<const std::string_view> keys) {
  std::vector<RemoveOutcome> outcomes;
  for (const std::string_view key : keys) {
    LEVADA_ASSIGN_OR_RETURN(const RemoveOutcome outcome, remove(key));
    outcomes.push_back(outcome);
  }
  return outcomes;
}

Status ObjectStore::fetch(std::span<Fetch>, std::uint64_t, FetchMode) {
  return {StatusCode::kFailedPrecondition, "this store's objects are not in memory of a device", "store"};
}

Status wrong_incarnation(std::uint64_t wanted, std::uint64_t present) {
  return not_found(
      "the objects of arena " + std::to_string(wanted) + " are gone with it; this one is " + std::to_string(present),
      "incarnation");
}

Status check_key(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return {};
  return invalid_argument(
      "an object's key has 1 to " + std::to_string(kMaxKeyBytes) + " bytes, this one has " + std::to_string(key.size()),
      "key");
}

Status wrong_length(std::string_view key, std::uint64_t object_bytes, std::uint64_t destination_bytes) {
  return invalid_argument("object '" + std::string(key) + "' has " + std::to_string(object_bytes) +
                              " bytes, the destination " + std::to_string(destination_bytes),
                          "destination");
}

}  // namespace levada::store
