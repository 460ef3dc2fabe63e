// XXH3-64 (seed 0) of every piece by a workgroup, which copies what it reads. Each warp takes some of the piece's blocks: a
// thread two neighbouring words of two of a block's 16 stripes, summed over the warp once a block. What cannot be done in
// parallel, the scrambling between blocks, the first warp does at the end from those sums.
#include <cuda_runtime.h>

#include "store/copy_pieces.h"
#include "store/piece_hash.h"

namespace levada::store {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;  // on a piece
constexpr int kThreads = kWarps * kWarp;
constexpr int kWorkgroups = 4;  // on a multiprocessor
constexpr int kAccumulators = 8;
constexpr int kPairs = 4;  // of words in a stripe
constexpr int kStripesAtOnce = kWarp / kPairs;
constexpr int kStripeBytes = 64;
constexpr int kStripesPerBlock = 16;
constexpr int kBlockBytes = kStripeBytes * kStripesPerBlock;
constexpr int kBlocksPerRound = static_cast<int>(kHashPieceBytes) / kBlockBytes;
constexpr int kBlocksPerWarp = kBlocksPerRound / kWarps;
constexpr int kMostBlocks = 2 * kBlocksPerRound;  // the last piece takes the rest too
constexpr unsigned kAll = 0xFFFFFFFFu;
static_assert(kThreads >= kStripeBytes, "the last stripe is copied byte by byte");
constexpr std::uint64_t kPrime32_1 = 0x9E3779B1u, kPrime32_2 = 0x85EBCA77u, kPrime32_3 = 0xC2B2AE3Du;
constexpr std::uint64_t kPrime64_1 = 0x9E3779B185EBCA87ull, kPrime64_2 = 0xC2B2AE3D27D4EB4Full,
                        kPrime64_3 = 0x165667B19E3779F9ull, kPrime64_4 = 0x85EBCA77C2B2AE63ull,
                        kPrime64_5 = 0x27D4EB2F165667C5ull;

// As words: only the last stripe and the end of the hash need others than these.
__device__ const std::uint64_t kSecret[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull, 0x78e5c0cc4ee679cbull,
    0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull, 0xcb00c391bb52283cull, 0xa32e531b8b65d088ull,
    0x4ef90da297486471ull, 0xd8acdea946ef1938ull, 0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull,
    0x647378d9c97e9fc8ull, 0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull};

__device__ std::uint64_t word_at(const std::uint8_t* bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes) % 8 == 0) return *reinterpret_cast<const std::uint64_t*>(bytes);
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

__device__ std::uint64_t secret_at(int byte) {
  const int shift = byte % 8 * 8;
  const std::uint64_t low = __ldg(kSecret + byte / 8);
  return shift == 0 ? low : low >> shift | __ldg(kSecret + byte / 8 + 1) << (64 - shift);
}

__device__ std::uint64_t start_of(int accumulator) {
  constexpr std::uint64_t kStart[] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                      kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  return kStart[accumulator];
}

__device__ std::uint64_t product(std::uint64_t key) { return (key & 0xFFFFFFFFu) * (key >> 32); }

// Two neighbouring words, or what they add to their accumulators.
struct Pair {
  std::uint64_t even = 0, odd = 0;

  __device__ void take(const Pair& data, const Pair& secret) {
    even += data.odd + product(data.even ^ secret.even);
    odd += data.even + product(data.odd ^ secret.odd);
  }
};

// Where both memories allow it a pair is one access.
template <bool kWide>
__device__ Pair load(const std::uint8_t* from) {
  if constexpr (kWide) {
    const ulonglong2 both = __ldcs(reinterpret_cast<const ulonglong2*>(from));
    return {both.x, both.y};
  }
  const auto* words = reinterpret_cast<const unsigned long long*>(from);
  return {__ldcs(words), __ldcs(words + 1)};
}

template <bool kWide>
__device__ void store(std::uint8_t* to, const Pair& data) {
  if constexpr (kWide) return __stcs(reinterpret_cast<ulonglong2*>(to), make_ulonglong2(data.even, data.odd));
  auto* words = reinterpret_cast<unsigned long long*>(to);
  __stcs(words, data.even);
  __stcs(words + 1, data.odd);
}

// What the blocks of a piece add to the accumulators.
using BlockSums = std::uint64_t[kMostBlocks][kAccumulators];

// One thread's place in its warp: the lower half of a warp ends with the even accumulators, the upper half with the odd
// ones.
struct Place {
  int thread = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  int stripe = thread / kPairs, pair = thread % kPairs;
  bool odd = thread >= kWarp / 2;
  int owned = 2 * pair + odd;
};

// What all stripes of a block add to the accumulator that this thread owns; four threads own the same.
__device__ std::uint64_t sum_over(const Pair& taken, bool odd) {
  std::uint64_t mine = odd ? taken.odd : taken.even;
  mine += __shfl_xor_sync(kAll, odd ? taken.even : taken.odd, kWarp / 2);
  mine += __shfl_xor_sync(kAll, mine, kPairs);
  return mine + __shfl_xor_sync(kAll, mine, 2 * kPairs);
}

// The blocks of one warp in one round, as far as they have whole stripes before the piece's last one.
template <bool kWide>
__device__ void take_blocks(const std::uint8_t* from, std::uint8_t* to, int first_block, int stripes,
                            const Pair (&secrets)[2], const Place& place, BlockSums& sums) {
  const int begin = first_block * kBlockBytes + static_cast<int>(sizeof(Pair)) * place.thread;
  const int first_stripe = first_block * kStripesPerBlock + place.stripe;
  Pair data[2 * kBlocksPerWarp];
#pragma unroll
  for (int i = 0; i < 2 * kBlocksPerWarp; ++i)
    if (first_stripe + i * kStripesAtOnce < stripes) data[i] = load<kWide>(from + begin + i * (kBlockBytes / 2));
#pragma unroll
  for (int i = 0; i < 2 * kBlocksPerWarp; ++i)
    if (to != nullptr && first_stripe + i * kStripesAtOnce < stripes)
      store<kWide>(to + begin + i * (kBlockBytes / 2), data[i]);
#pragma unroll
  for (int block = 0; block < kBlocksPerWarp; ++block) {
    Pair taken;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (first_stripe + (2 * block + half) * kStripesAtOnce < stripes)
        taken.take(data[2 * block + half], secrets[half]);
    const std::uint64_t sum = sum_over(taken, place.odd);
    if (place.stripe % (kStripesAtOnce / 2) == 0) sums[first_block + block][place.owned] = sum;
  }
}

// By eight threads, one per accumulator; `last` is the word of the last stripe that is this one's.
__device__ std::uint64_t finish(const BlockSums& sums, std::uint64_t bytes, std::uint64_t last, int accumulator) {
  constexpr unsigned kMask = (1u << kAccumulators) - 1;
  const std::uint64_t scrambler = __ldg(kSecret + kStripesPerBlock + accumulator);
  const int blocks = static_cast<int>((bytes - 1) / kBlockBytes);
  std::uint64_t sum = start_of(accumulator);
  for (int block = 0; block < blocks; ++block) {
    sum += sums[block][accumulator];
    sum = (sum ^ (sum >> 47) ^ scrambler) * kPrime32_1;
  }
  sum += sums[blocks][accumulator] + __shfl_xor_sync(kMask, last, 1) + product(last ^ secret_at(121 + 8 * accumulator));
  const std::uint64_t mixed = sum ^ secret_at(11 + 8 * accumulator);
  const std::uint64_t other = __shfl_xor_sync(kMask, mixed, 1);
  std::uint64_t part = accumulator % 2 == 0 ? (mixed * other) ^ __umul64hi(mixed, other) : 0;
  for (int step = 1; step < kAccumulators; step *= 2) part += __shfl_xor_sync(kMask, part, step);
  std::uint64_t hash = bytes * kPrime64_1 + part;
  hash = (hash ^ (hash >> 37)) * 0x165667919E3779F9ull;
  return hash ^ (hash >> 32);
}

template <bool kWide>
__device__ std::uint64_t copy_piece(const std::uint8_t* from, std::uint8_t* to, std::uint64_t bytes) {
  __shared__ BlockSums sums;
  const Place place;
  const bool finishes = threadIdx.x < kAccumulators;
  const std::uint64_t last_at = bytes - kStripeBytes + 8 * threadIdx.x;
  const std::uint64_t last = finishes ? word_at(from + last_at) : 0;
  Pair secrets[2];
  for (int half = 0; half < 2; ++half) {
    const std::uint64_t* secret = kSecret + half * kStripesAtOnce + place.stripe + 2 * place.pair;
    secrets[half] = {__ldg(secret), __ldg(secret + 1)};
  }
  const int stripes = static_cast<int>((bytes - 1) / kStripeBytes);
  for (int block = place.warp * kBlocksPerWarp; block <= stripes / kStripesPerBlock; block += kBlocksPerRound)
    take_blocks<kWide>(from, to, block, stripes, secrets, place, sums);
  if (to != nullptr && threadIdx.x < kStripeBytes) {
    const std::uint64_t at = bytes - kStripeBytes + threadIdx.x;
    to[at] = from[at];
  }
  __syncthreads();
  return finishes ? finish(sums, bytes, last, static_cast<int>(threadIdx.x)) : 0;
}

__global__ void __launch_bounds__(kThreads, kWorkgroups)
    copy_pieces(const __grid_constant__ PieceJobs jobs, std::uint64_t* hashes) {
  const PieceJob& job = jobs.jobs[blockIdx.y];
  const std::uint64_t pieces = piece_count(job.bytes);
  if (blockIdx.x >= pieces) return;
  const std::uint64_t piece = pieces - 1 - blockIdx.x;  // the longest first
  const std::uint64_t begin = piece * kHashPieceBytes;
  const std::uint64_t bytes = piece + 1 == pieces ? job.bytes - begin : kHashPieceBytes;
  const auto* const from = static_cast<const std::uint8_t*>(job.from) + begin;
  auto* const to = job.to == nullptr ? nullptr : static_cast<std::uint8_t*>(job.to) + begin;
  const bool wide = (reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to)) % sizeof(Pair) == 0;
  const std::uint64_t hash = wide ? copy_piece<true>(from, to, bytes) : copy_piece<false>(from, to, bytes);
  if (threadIdx.x == 0) hashes[job.first_piece + piece] = hash;
}

}  // namespace
}  // namespace levada::store

extern "C" __attribute__((visibility("default"))) int levada_copy_pieces(const levada::store::PieceJobs& jobs,
                                                                         std::uint64_t* hashes, void* stream) {
  using namespace levada::store;
  std::uint64_t most = 0;
  for (int i = 0; i < jobs.count; ++i) most = std::max(most, piece_count(jobs.jobs[i].bytes));
  const dim3 grid(static_cast<unsigned>(most), static_cast<unsigned>(jobs.count));
  copy_pieces<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(jobs, hashes);
  return static_cast<int>(cudaGetLastError());
}
