// What: a GGUF file's metadata and tensor list, read from bytes.
// Owner: none; string_views and TensorInfo::bytes point into the argument. Private to the room.
// Thread: any.
// Invariant: bytes are untrusted; every failure is kDataLoss naming `file`, the key or tensor and both numbers. Memory
// taken is proportional to the bytes given, never to a count in them.
// Format: docs/formats/gguf.md.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "files/tensor_source.h"

namespace levada::files {

// Numbers are widened; an unsigned 64-bit number above 2^63-1 becomes a double. Float and bool arrays are checked and
// then left as monostate, because nobody asks for them.
using GgufValue = std::variant<std::monostate, std::int64_t, double, bool, std::string_view,
                               std::vector<std::string_view>, std::vector<std::int64_t>>;

struct GgufContents {
  std::map<std::string_view, GgufValue> metadata;
  std::vector<TensorInfo> tensors;
};

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, const std::string& file);

}  // namespace levada::files
