// What: BatchWriter, objects published from memory of a device, a batch at a time: all of it becomes readable, or none.
// Owner: one per writing thread; the arena, which must be on a device, outlives it.
// Thread: one at a time.
// Invariant: no object is readable before all copies of its batch have happened; whatever fails, the arena's usage is
// what it was before, plus what others freed. After a device's error every batch is refused.
#pragma once

#include <string>

#include "store/arena.h"
#include "store/batch_copier.h"

namespace levada::store {

class BatchWriter {
 public:
  struct Item {
    std::string key;
    std::span<const std::byte> bytes;  // of the arena's device, at a multiple of 8; kept by the caller until the return
    bool replace = false;              // an object of that key goes first; else it is an error
  };
  static Result<std::unique_ptr<BatchWriter>> create(Arena& arena);

  // Copies wait for `ready` (if any) on the device. kPayloadTooLarge at once for a batch larger than the arena;
  // kAlreadyExists for a live key, or one twice in the batch; kResourceExhausted if no space came until the clock shows
  // `deadline_us`; kUnavailable once the device has failed. The infos' checksums are piece_hash().
  Result<std::vector<ObjectInfo>> publish(std::span<const Item> items, const device::Event* ready,
                                          std::int64_t deadline_us);

 private:
  BatchWriter(Arena& arena, std::unique_ptr<BatchCopier> copier) : arena_(arena), copier_(std::move(copier)) {}
  Result<std::vector<Slot>> place(std::span<const Item> items, std::int64_t deadline_us);

  Arena& arena_;
  std::unique_ptr<BatchCopier> copier_;
  Status broken_;
};

}  // namespace levada::store
