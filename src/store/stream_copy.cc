#include "store/stream_copy.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"

namespace levada::store {
namespace {

void copy_plain(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // an empty span may have no address
}

// Copies up to the first cache line of `to` and returns how much that was: streaming stores need aligned addresses.
std::size_t copy_head(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head = std::min(bytes, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  return head;
}

__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = copy_head(to, from, bytes);
  for (; at + 128 <= bytes; at += 128) {
    const __m256i* source = reinterpret_cast<const __m256i*>(from + at);
    __m256i* target = reinterpret_cast<__m256i*>(to + at);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
    _mm256_stream_si256(target + 2, c);
    _mm256_stream_si256(target + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
}

__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = copy_head(to, from, bytes);
  for (; at + 128 <= bytes; at += 128) {
    const __m512i a = _mm512_loadu_si512(from + at), b = _mm512_loadu_si512(from + at + 64);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 64), b);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
}

CopyFunction best_copy() {
  for (const char* name : {"avx512", "avx2"}) {
    if (CopyFunction copy = copy_function(name)) return copy;
  }
  return copy_plain;
}

CopyFunction streaming() {
  static const CopyFunction copy = best_copy();
  return copy;
}

}  // namespace

CopyFunction copy_function(const char* name) {
  const std::string_view wanted = name;
  if (wanted == "avx512" && __builtin_cpu_supports("avx512f")) return copy_avx512;
  if (wanted == "avx2" && __builtin_cpu_supports("avx2")) return copy_avx2;
  return wanted == "plain" ? copy_plain : nullptr;
}

void stream_copy(std::span<std::byte> to, std::span<const std::byte> from) {
  LEVADA_CHECK(to.size() == from.size(), "a copy needs two spans of one length");
  if (to.size() < kStreamFromBytes) return copy_plain(to.data(), from.data(), to.size());
  streaming()(to.data(), from.data(), to.size());
}

std::uint64_t stream_copy_hashed(std::span<std::byte> to, std::span<const std::byte> from) {
  constexpr std::size_t kPieceBytes = 128 * 1024;  // stays in the second-level cache between hash and copy
  if (to.size() < kStreamFromBytes) {
    stream_copy(to, from);
    return hash64(from);
  }
  Hash64Stream hash;
  const CopyFunction copy = streaming();
  LEVADA_CHECK(to.size() == from.size(), "a copy needs two spans of one length");
  for (std::size_t at = 0; at < from.size(); at += kPieceBytes) {
    const std::size_t piece = std::min(kPieceBytes, from.size() - at);
    hash.update(from.subspan(at, piece));
    copy(to.data() + at, from.data() + at, piece);
  }
  return hash.digest();
}

}  // namespace levada::store
