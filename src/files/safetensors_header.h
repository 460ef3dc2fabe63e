// What: the two JSON texts of a safetensors checkpoint, read from bytes: a file's header and a folder's shard index.
// Owner: none; TensorInfo::bytes point into the argument. Private to the room.
// Thread: any.
// Invariant: bytes are untrusted; every failure is kDataLoss naming `file` and the entry at fault.
// Format: docs/formats/safetensors.md.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "files/tensor_source.h"

namespace levada::files {

// Longest JSON text that is read; the limit of the reference implementation.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The tensors of a whole file, checked: ranges inside the data section, disjoint, and together all of it.
Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

// Weight name → file name of its shard, from model.safetensors.index.json. Shard names are plain names in the folder.
Result<std::map<std::string, std::string>> parse_shard_index(std::span<const std::byte> bytes, const std::string& file);

}  // namespace levada::files
