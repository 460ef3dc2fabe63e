#include "store/frame.h"

#include <bit>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/hash.h"

namespace levada::store {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little endian");

constexpr std::size_t kCheckedBytes = kFrameBytes - 8;
constexpr std::uint8_t kReplyBit = 0x80;

// The head as it travels.
struct WireFrame {
  char magic[4];
  std::uint8_t version, op, status, flags;
  std::uint32_t id;
  std::uint16_t text_bytes, field_bytes;
  std::uint64_t body_bytes, first, second, third, incarnation, check;
};
static_assert(sizeof(WireFrame) == kFrameBytes);
constexpr char kMagic[4] = {'L', 'V', 'S', 'T'};

// Numbers on the wire, whatever order StatusCode has.
constexpr StatusCode kStatusOnWire[] = {StatusCode::kOk,
                                        StatusCode::kInvalidArgument,
                                        StatusCode::kUnauthenticated,
                                        StatusCode::kPermissionDenied,
                                        StatusCode::kNotFound,
                                        StatusCode::kAlreadyExists,
                                        StatusCode::kPayloadTooLarge,
                                        StatusCode::kResourceExhausted,
                                        StatusCode::kAborted,
                                        StatusCode::kFailedPrecondition,
                                        StatusCode::kDataLoss,
                                        StatusCode::kUnavailable,
                                        StatusCode::kInternal};

std::uint8_t wire_number(StatusCode status) {
  for (std::size_t i = 0; i < std::size(kStatusOnWire); ++i)
    if (kStatusOnWire[i] == status) return static_cast<std::uint8_t>(i);
  return std::size(kStatusOnWire) - 1;
}

std::uint64_t check_value(std::span<const std::byte, kFrameBytes> head) { return hash64(head.first(kCheckedBytes)); }

// What a well-formed head says, beyond its bytes.
const char* contradiction(const Frame& frame) {
  if (frame.text_bytes > kMaxTextBytes) return "a text longer than 1024 bytes";
  if (frame.field_bytes > frame.text_bytes) return "a field longer than its text";
  const bool carries_body = frame.op == (frame.reply ? Op::kGet : Op::kPut);
  if (frame.body_bytes > 0 && !carries_body) return "a body where none belongs";
  if (!frame.reply && (frame.status != StatusCode::kOk || frame.field_bytes > 0)) return "a request with a status";
  if (frame.reply && frame.status != StatusCode::kOk && frame.body_bytes > 0) return "an error with a body";
  return nullptr;
}

}  // namespace

std::array<std::byte, kFrameBytes> encode(const Frame& frame) {
  WireFrame wire{};
  std::memcpy(wire.magic, kMagic, sizeof kMagic);
  wire.version = kFrameVersion;
  wire.op = static_cast<std::uint8_t>(static_cast<std::uint8_t>(frame.op) | (frame.reply ? kReplyBit : 0));
  wire.status = wire_number(frame.status);
  wire.flags = frame.flags;
  wire.id = frame.id;
  wire.text_bytes = frame.text_bytes;
  wire.field_bytes = frame.field_bytes;
  wire.body_bytes = frame.body_bytes;
  wire.first = frame.first;
  wire.second = frame.second;
  wire.third = frame.third;
  wire.incarnation = frame.incarnation;
  std::array<std::byte, kFrameBytes> head;
  std::memcpy(head.data(), &wire, kFrameBytes);
  const std::uint64_t check = check_value(head);
  std::memcpy(head.data() + kCheckedBytes, &check, sizeof check);
  return head;
}

Result<Frame> decode(std::span<const std::byte, kFrameBytes> head) {
  const auto bad = [](const std::string& what) { return data_loss("store frame: " + what); };
  WireFrame wire;
  std::memcpy(&wire, head.data(), kFrameBytes);
  if (std::memcmp(wire.magic, kMagic, sizeof kMagic) != 0) return bad("not a frame of levada's store");
  if (wire.version != kFrameVersion) {
    return bad("version " + std::to_string(wire.version) + ", this levada speaks " + std::to_string(kFrameVersion));
  }
  if (wire.check != check_value(head)) return bad("its head is damaged");
  const std::uint8_t op = wire.op & static_cast<std::uint8_t>(~kReplyBit);
  if (op < static_cast<std::uint8_t>(Op::kHello) || op > static_cast<std::uint8_t>(Op::kPlace))
    return bad("unknown operation " + std::to_string(op));
  if (wire.status >= std::size(kStatusOnWire)) return bad("unknown status " + std::to_string(wire.status));
  Frame frame{static_cast<Op>(op),
              (wire.op & kReplyBit) != 0,
              kStatusOnWire[wire.status],
              wire.flags,
              wire.id,
              wire.text_bytes,
              wire.field_bytes,
              wire.body_bytes,
              wire.first,
              wire.second,
              wire.third,
              wire.incarnation};
  if (const char* what = contradiction(frame)) return bad(what);
  return frame;
}

ErrorText error_text(const Status& status) {
  const std::string field = status.field().substr(0, 128);
  return {status.message().substr(0, kMaxTextBytes - field.size()) + field, static_cast<std::uint16_t>(field.size())};
}

Status status_of(const Frame& reply, std::string_view text) {
  const std::size_t message_bytes = text.size() - reply.field_bytes;
  return Status(reply.status, std::string(text.substr(0, message_bytes)), std::string(text.substr(message_bytes)));
}

}  // namespace levada::store
