// What: ByteReader, a cursor over untrusted little-endian bytes that cannot leave them.
// Owner: refers to bytes that must outlive it. Private to the room.
// Thread: one.
// Invariant: position() <= size; a failed read moves nothing and answers nullopt.
// Format: GGUF's primitives; a string is a 64-bit length and that many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace levada::files {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return position_; }
  std::size_t left() const { return bytes_.size() - position_; }

  template <class T>
  std::optional<T> read() {
    const auto raw = read_bytes(sizeof(T));
    if (!raw) return std::nullopt;
    T value;
    std::memcpy(&value, raw->data(), sizeof value);
    return value;
  }

  std::optional<std::span<const std::byte>> read_bytes(std::uint64_t count) {
    if (count > left()) return std::nullopt;
    const auto part = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += part.size();
    return part;
  }

  std::optional<std::string_view> read_string() {
    const std::size_t begin = position_;
    const auto length = read<std::uint64_t>();
    const auto raw = length ? read_bytes(*length) : std::nullopt;
    if (!raw) {
      position_ = begin;
      return std::nullopt;
    }
    return std::string_view(reinterpret_cast<const char*>(raw->data()), raw->size());
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace levada::files
