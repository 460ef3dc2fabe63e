#include "store/batch_writer.h"

#include "base/check.h"

namespace levada::store {

Result<std::unique_ptr<BatchWriter>> BatchWriter::create(Arena& arena) {
  LEVADA_CHECK(arena.device() != nullptr, "the arena is on a device");
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<BatchCopier> copier, BatchCopier::create(*arena.device()));
  return std::unique_ptr<BatchWriter>(new BatchWriter(arena, std::move(copier)));
}

Result<std::vector<Slot>> BatchWriter::place(std::span<const Item> items, std::int64_t deadline_us) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(items.size());
  for (const Item& item : items) sizes.push_back(item.bytes.size());
  LEVADA_RETURN_IF_ERROR(arena_.check_fits(sizes));
  for (const Item& item : items)
    if (item.replace) arena_.remove(item.key);
  std::vector<Slot> slots;
  slots.reserve(items.size());
  for (const Item& item : items) {
    LEVADA_ASSIGN_OR_RETURN(Slot slot, arena_.reserve(item.key, item.bytes.size(), deadline_us));
    slots.push_back(std::move(slot));
  }
  return slots;
}

Result<std::vector<ObjectInfo>> BatchWriter::publish(std::span<const Item> items, const device::Event* ready,
                                                     std::int64_t deadline_us) {
  LEVADA_RETURN_IF_ERROR(broken_);
  LEVADA_ASSIGN_OR_RETURN(std::vector<Slot> slots, place(items, deadline_us));
  const std::int64_t placed_us = arena_.clock().now_us();
  std::vector<Transfer> transfers;
  transfers.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    transfers.push_back({items[i].bytes.data(), slots[i].bytes().data(), items[i].bytes.size()});
  const Status ordered = ready == nullptr ? Status() : copier_->after(*ready);
  const auto checksums = ordered.ok() ? copier_->copy_measured(transfers) : Result<std::vector<std::uint64_t>>(ordered);
  if (!checksums.ok()) {
    arena_.count_copy_error();
    broken_ = unavailable("publication ended with the device's error: " + checksums.status().message());
    return checksums.status();
  }
  std::vector<ObjectInfo> infos;
  infos.reserve(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Result<ObjectInfo> info = slots[i].seal((*checksums)[i]);
    if (!info.ok()) {  // removed by somebody while it was written: the batch is not whole
      for (std::size_t sealed = 0; sealed < i; ++sealed) arena_.remove(items[sealed].key);
      return info.status();
    }
    infos.push_back(*info);
  }
  arena_.count_publication(arena_.clock().now_us() - placed_us);
  return infos;
}

}  // namespace levada::store
