// What: Philox 4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2,
// 3").
// Owner: none, stateless.
// Thread: any.
// Invariant: the same counter and key give the same four words everywhere; known answers are in sampling_test.cc. Used
// with one counter per sampled position, so no stream has to be carried along.
#pragma once

#include <array>
#include <cstdint>

namespace levada::kernels {

constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace levada::kernels
