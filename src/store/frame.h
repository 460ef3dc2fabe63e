// What: Frame, the fixed head of every message between a store's client and server, and its bytes.
// Owner: value type.
// Thread: any.
// Invariant: decode() accepts exactly what encode() writes: magic, version, a known operation, bounded lengths and the
// check value of the head. Nothing here allocates by a number a peer sent.
// Format: docs/formats/store.md, "Frames"; golden bytes in tests/vectors/store/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace levada::store {

inline constexpr std::size_t kFrameBytes = 64;
inline constexpr std::size_t kMaxTextBytes = 1024;  // a key, a token or an error's message and field
inline constexpr std::uint8_t kFrameVersion = 1;
// How much of a value goes through a buffer at a time, on either side.
inline constexpr std::size_t kSocketPieceBytes = 64 * 1024;

enum class Op : std::uint8_t {
  kHello = 1,
  kExist = 2,
  kPut = 3,
  kGet = 4,
  kRemove = 5,
  kRemovePrefix = 6,
  kLease = 7,
  kRelease = 8,  // has no reply
  kUcxPort = 9,  // where the bytes of leases and places travel over UCX
  kPlace = 10,   // a put whose bytes do
};

// What `flags` means: in a put request, that `second` is the checksum; in the reply to is_exist, that there is one; in
// the reply to remove, a RemoveOutcome.
struct Frame {
  Op op = Op::kHello;
  bool reply = false;
  StatusCode status = StatusCode::kOk;
  std::uint8_t flags = 0;
  std::uint32_t id = 0;                            // a reply repeats its request's
  std::uint16_t text_bytes = 0;                    // follow the head: key, token, or error message + field
  std::uint16_t field_bytes = 0;                   // the last ones of an error's text
  std::uint64_t body_bytes = 0;                    // follow the text: an object's value
  std::uint64_t first = 0, second = 0, third = 0;  // by operation, see the format page
  std::uint64_t incarnation = 0;
  bool operator==(const Frame&) const = default;
};

std::array<std::byte, kFrameBytes> encode(const Frame& frame);
// kDataLoss naming what is wrong with the head.
Result<Frame> decode(std::span<const std::byte, kFrameBytes> head);

// The parts of a failed Status as a reply carries them; too long a message is cut.
struct ErrorText {
  std::string text;
  std::uint16_t field_bytes;
};
ErrorText error_text(const Status& status);
Status status_of(const Frame& reply, std::string_view text);

}  // namespace levada::store
