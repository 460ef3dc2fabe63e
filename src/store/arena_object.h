// What: ArenaObject, the arena's record of one object; its states are drawn in arena.h.
// Owner: Arena::objects_, a map whose nodes don't move, so that slots and views can point here.
// Thread: under the Arena's mutex, except the fields that never change after reserve().
// Invariant: `entry` is taken from the index as long as the record lives; `guard` is set once readable.
#pragma once

#include <cstdint>
#include <string>

#include "store/object_store.h"

namespace levada::store {

struct ArenaObject {
  enum class State : std::uint8_t { kWriting, kReadable, kRemoved };
  std::string key;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t entry = 0;
  std::uint64_t guard = 0;
  State state = State::kWriting;
  bool slot_open = true;
  std::uint32_t views = 0, leases = 0;
  ObjectInfo info;
};

}  // namespace levada::store
