// What: the headers of the active messages between a UcxLink and a UcxPort; the bytes of objects are their data.
// Owner: value types.
// Thread: any.
// Invariant: a reader of a header checks its length first; nothing in it is used before its secret was compared.
// Format: docs/formats/store.md, "Transfers over UCX".
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "store/ucx_module.h"

namespace levada::store::ucx {

enum MessageId : unsigned { kRead = 1, kWrite = 2, kBytes = 3, kAnswer = 4 };

struct Wish {  // of kRead and kWrite, from the client
  UcxSecret secret;
  std::uint64_t number;  // the client's; its answer repeats it
  std::uint64_t grant;   // a lease or a ticket
};

struct Answer {  // of kBytes (alone the number counts) and kAnswer, whose data is the text of a failure
  std::uint64_t number;
  std::uint64_t status;  // a StatusCode, whose numbers are the format's
  std::uint64_t bytes, checksum;
};

static_assert(static_cast<int>(StatusCode::kNotFound) == 4 && static_cast<int>(StatusCode::kInternal) == 12);
inline constexpr std::size_t kMostTextBytes = 1024;  // of a failure

template <class Header>
bool read_header(const void* from, std::size_t bytes, Header& header) {
  if (bytes != sizeof header) return false;
  std::memcpy(&header, from, sizeof header);
  return true;
}

}  // namespace levada::store::ucx
