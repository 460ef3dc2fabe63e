#include "store/shm_store.h"

#include <utility>

#include "base/memory_file.h"
#include "store/reader_slots.h"
#include "store/stream_copy.h"

namespace levada::store {
namespace {

constexpr std::int64_t kTrustUs = 1000;
constexpr int kReadAttempts = 16;

}  // namespace

struct ShmStore::Mapping {
  MemoryFile arena, slots_memory;
  IndexReader index;
  std::unique_ptr<device::DeviceBuffer> device_memory;  // null: the data is in `arena`
  std::span<const std::byte> data() const {
    if (device_memory == nullptr) return index.data();
    return {static_cast<const std::byte*>(device_memory->data()), index.data_bytes()};
  }
  std::atomic<std::size_t> next_slot{0};
  ReaderSlots& slots() { return *reinterpret_cast<ReaderSlots*>(slots_memory.bytes().data()); }
};

class ShmStore::ViewHold final : public ObjectView::Hold {
 public:
  ViewHold(std::shared_ptr<Mapping> mapping, const IndexReader::Found& found, std::size_t slot)
      : mapping_(std::move(mapping)), found_(found), slot_(slot) {}
  ~ViewHold() override { mapping_->slots().clear(slot_); }
  bool still_valid() const override { return mapping_->index.still(found_) && !mapping_->index.closed(); }

 private:
  std::shared_ptr<Mapping> mapping_;
  IndexReader::Found found_;
  std::size_t slot_;
};

ShmStore::ShmStore(const Endpoint& endpoint, const std::string& token, const ClientOptions& options, const Clock& clock)
    : clock_(clock),
      device_(endpoint.kind == Endpoint::Kind::kNvlink ? options.device : nullptr),
      remote_(endpoint, token, options, clock,
              [this](const Frame& hello, std::vector<Fd> descriptors) { return map(hello, std::move(descriptors)); }) {}

Result<std::unique_ptr<ObjectStore>> ShmStore::open(const Endpoint& endpoint, const std::string& token,
                                                    const ClientOptions& options, const Clock& clock) {
  std::unique_ptr<ShmStore> store(new ShmStore(endpoint, token, options, clock));
  if (store->device_ != nullptr) {
    LEVADA_ASSIGN_OR_RETURN(store->copier_, BatchCopier::create(*store->device_));
  }
  LEVADA_RETURN_IF_ERROR(store->remote_.channel().connect());
  return std::unique_ptr<ObjectStore>(std::move(store));
}

Status ShmStore::map(const Frame& hello, std::vector<Fd> descriptors) {
  const bool on_device = hello.third > 1;
  if (descriptors.size() != (on_device ? 3 : 2) ||
      hello.third > 1 + static_cast<std::uint64_t>(device::ShareKind::kFabric))
    return data_loss("the store shares no memory with us");
  if (on_device != (device_ != nullptr)) {
    return data_loss(on_device ? "the store's objects are on a device: its URL is nvlink://"
                               : "the store's objects are in host memory: its URL is shm://");
  }
  const std::uint64_t in_file = on_device ? 1 : hello.first;
  LEVADA_ASSIGN_OR_RETURN(MemoryFile arena,
                          MemoryFile::map(std::move(descriptors[0]), MemoryFile::Access::kRead, in_file));
  LEVADA_ASSIGN_OR_RETURN(MemoryFile slots, MemoryFile::map(std::move(descriptors[1]), MemoryFile::Access::kReadWrite,
                                                            sizeof(ReaderSlots)));
  LEVADA_ASSIGN_OR_RETURN(const IndexReader index, IndexReader::open(arena.bytes()));
  if (index.incarnation() != hello.incarnation) return wrong_incarnation(hello.incarnation, index.incarnation());
  std::unique_ptr<device::DeviceBuffer> device_memory;
  if (on_device) {
    if (index.data_bytes() != hello.first) return data_loss("the store's index is of another arena");
    const auto kind = static_cast<device::ShareKind>(hello.third - 1);
    LEVADA_ASSIGN_OR_RETURN(device_memory, device_->import_shared(kind, std::move(descriptors[2]), index.data_bytes()));
  }
  auto mapping =
      std::shared_ptr<Mapping>(new Mapping{std::move(arena), std::move(slots), index, std::move(device_memory), {}});
  std::lock_guard lock(mutex_);
  mapping_ = std::move(mapping);
  return {};
}

Result<std::shared_ptr<ShmStore::Mapping>> ShmStore::current() {
  const auto mapping = [&] {
    std::lock_guard lock(mutex_);
    return mapping_;
  };
  const std::int64_t now_us = clock_.now_us();
  std::shared_ptr<Mapping> present = mapping();
  if (!present->index.closed() && now_us < alive_until_us_.load(std::memory_order_relaxed)) return present;
  if (!remote_.channel().alive()) {
    LEVADA_RETURN_IF_ERROR(remote_.channel().connect());
    present = mapping();
  }
  alive_until_us_.store(now_us + kTrustUs, std::memory_order_relaxed);
  return present;
}

Result<std::optional<ObjectView>> ShmStore::try_view(std::string_view key, std::uint64_t incarnation) {
  LEVADA_RETURN_IF_ERROR(check_key(key));
  LEVADA_ASSIGN_OR_RETURN(const std::shared_ptr<Mapping> mapping, current());
  const std::uint64_t present = mapping->index.incarnation();
  if (incarnation != kAnyIncarnation && incarnation != present) return wrong_incarnation(incarnation, present);
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    IndexReader::Found found;
    const IndexReader::Answer answer = mapping->index.find(key, found);
    if (answer == IndexReader::Answer::kAbsent) return std::optional<ObjectView>();
    if (answer == IndexReader::Answer::kUnsure) continue;
    const std::optional<std::size_t> slot = mapping->slots().try_take(
        ReaderSlots::name(found.entry, found.guard), mapping->next_slot.fetch_add(1, std::memory_order_relaxed));
    if (!slot) {
      return resource_exhausted("this client reads " + std::to_string(ReaderSlots::kSlots) +
                                " objects at once, the most there can be");
    }
    auto hold = std::make_unique<ViewHold>(mapping, found, *slot);
    // The slot is seen by the owner from here on; if the object went before that, its guard tells.
    if (!mapping->index.still(found)) continue;
    return std::optional(
        ObjectView(mapping->data().subspan(found.offset, found.bytes), {found.bytes, found.checksum}, std::move(hold)));
  }
  return unavailable("the store's index changes too fast to be read");
}

Result<std::optional<ObjectInfo>> ShmStore::is_exist(std::string_view key) {
  LEVADA_ASSIGN_OR_RETURN(const std::optional<ObjectView> view, try_view(key, kAnyIncarnation));
  return view ? std::optional(view->info()) : std::nullopt;
}

Result<ObjectView> ShmStore::view(std::string_view key, std::uint64_t incarnation) {
  LEVADA_ASSIGN_OR_RETURN(std::optional<ObjectView> view, try_view(key, incarnation));
  if (!view) return not_found("no object '" + std::string(key) + "'", "key");
  return *std::move(view);
}

Result<ObjectInfo> ShmStore::get_into(std::string_view key, std::span<std::byte> destination,
                                      std::uint64_t incarnation) {
  LEVADA_ASSIGN_OR_RETURN(const ObjectView view, this->view(key, incarnation));
  if (view.bytes().size() != destination.size()) return wrong_length(key, view.bytes().size(), destination.size());
  if (device_ != nullptr) {
    std::lock_guard lock(copy_mutex_);
    const Transfer transfer{view.bytes().data(), destination.data(), destination.size()};
    LEVADA_RETURN_IF_ERROR(copier_->copy(std::span(&transfer, 1)));
  } else {
    stream_copy(destination, view.bytes());
  }
  return view.info();
}

Status ShmStore::fetch(std::span<Fetch> fetches, std::uint64_t incarnation, FetchMode mode) {
  if (device_ == nullptr) return ObjectStore::fetch(fetches, incarnation, mode);
  std::vector<ObjectView> views;
  std::vector<Transfer> transfers;
  for (const Fetch& fetch : fetches) {
    LEVADA_ASSIGN_OR_RETURN(ObjectView view, this->view(fetch.key, incarnation));
    if (view.bytes().size() != fetch.destination.size())
      return wrong_length(fetch.key, view.bytes().size(), fetch.destination.size());
    transfers.push_back({view.bytes().data(), fetch.destination.data(), view.bytes().size()});
    views.push_back(std::move(view));
  }
  std::lock_guard lock(copy_mutex_);
  if (mode == FetchMode::kPlain) return copier_->copy(transfers);
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> checksums, copier_->copy_measured(transfers));
  for (std::size_t i = 0; i < fetches.size(); ++i) fetches[i].checksum = checksums[i];
  return {};
}

}  // namespace levada::store
