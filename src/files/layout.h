// What: arithmetic every reader shares: how many bytes a shape takes.
// Owner: none.
// Thread: any. Private to the room.
// Invariant: no multiplication here overflows; what passed expected_bytes() makes TensorInfo::elements() safe. Messages
// begin with `where`, "FILE: tensor 'NAME'".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "files/printed.h"
#include "files/tensor_source.h"

namespace levada::files {

// Bytes of a tensor; kDataLoss if a dimension is negative, a product exceeds 63 bits or the last dimension isn't a
// whole number of blocks.
Result<std::int64_t> expected_bytes(Encoding encoding, std::span<const std::int64_t> shape, const std::string& where);

}  // namespace levada::files
