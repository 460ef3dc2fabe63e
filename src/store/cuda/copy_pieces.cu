// XXH3-64 (seed 0) of every piece by eight threads, one per accumulator of that hash, which copy what they read.
#include <cuda_runtime.h>

#include "store/copy_pieces.h"
#include "store/piece_hash.h"

namespace levada::store {
namespace {

constexpr int kLanes = 8;
constexpr int kThreads = 128;
constexpr int kStripeBytes = 64;
constexpr int kStripesPerBlock = 16;
constexpr std::uint64_t kBlockBytes = kStripeBytes * kStripesPerBlock;
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
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

__device__ std::uint64_t secret_at(int byte) {
  const int shift = byte % 8 * 8;
  const std::uint64_t low = __ldg(kSecret + byte / 8);
  return shift == 0 ? low : low >> shift | __ldg(kSecret + byte / 8 + 1) << (64 - shift);
}

__device__ std::uint64_t start_of(int lane) {
  constexpr std::uint64_t kStart[kLanes] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                            kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  return kStart[lane];
}

// The eight threads of one piece: `mask` within their warp.
struct Lane {
  int lane;
  unsigned mask;
  std::uint64_t sum;

  __device__ void take(std::uint64_t data, std::uint64_t secret) {
    const std::uint64_t key = data ^ secret;
    sum += (key & 0xFFFFFFFFu) * (key >> 32) + __shfl_xor_sync(mask, data, 1, kLanes);
  }
  __device__ void scramble(std::uint64_t secret) { sum = (sum ^ (sum >> 47) ^ secret) * kPrime32_1; }
};

__device__ std::uint64_t fold(Lane& own, std::uint64_t bytes) {
  const std::uint64_t mixed = own.sum ^ secret_at(11 + 8 * own.lane);
  const std::uint64_t other = __shfl_xor_sync(own.mask, mixed, 1, kLanes);
  std::uint64_t part = own.lane % 2 == 0 ? (mixed * other) ^ __umul64hi(mixed, other) : 0;
  for (int step = 1; step < kLanes; step *= 2) part += __shfl_xor_sync(own.mask, part, step, kLanes);
  std::uint64_t hash = bytes * kPrime64_1 + part;
  hash = (hash ^ (hash >> 37)) * 0x165667919E3779F9ull;
  return hash ^ (hash >> 32);
}

__device__ std::uint64_t copy_piece(const std::uint8_t* from, std::uint8_t* to, std::uint64_t bytes,
                                    const std::uint64_t (&secrets)[kStripesPerBlock], int lane) {
  Lane own{lane, 0xFFu << (threadIdx.x % 32 / kLanes * kLanes), start_of(lane)};
  const std::uint64_t scrambler = __ldg(kSecret + 16 + lane);
  const std::uint64_t blocks = (bytes - 1) / kBlockBytes;
  const auto* in = reinterpret_cast<const std::uint64_t*>(from) + lane;
  auto* out = reinterpret_cast<std::uint64_t*>(to) + lane;
  for (std::uint64_t block = 0; block < blocks; ++block, in += kBlockBytes / 8, out += kBlockBytes / 8) {
    std::uint64_t data[kStripesPerBlock];
#pragma unroll
    for (int i = 0; i < kStripesPerBlock; ++i) data[i] = __ldcs(in + i * kLanes);
#pragma unroll
    for (int i = 0; i < kStripesPerBlock; ++i) {
      if (to != nullptr) __stcs(out + i * kLanes, data[i]);
      own.take(data[i], secrets[i]);
    }
    own.scramble(scrambler);
  }
  const std::uint64_t stripes = (bytes - 1 - blocks * kBlockBytes) / kStripeBytes;
  for (std::uint64_t i = 0; i < stripes; ++i) {
    const std::uint64_t data = in[i * kLanes];
    if (to != nullptr) out[i * kLanes] = data;
    own.take(data, __ldg(kSecret + i + lane));
  }
  own.take(word_at(from + bytes - kStripeBytes + 8 * lane), secret_at(121 + 8 * lane));
  for (std::uint64_t i = blocks * kBlockBytes + stripes * kStripeBytes + lane; i < bytes; i += kLanes)
    if (to != nullptr) to[i] = from[i];
  return fold(own, bytes);
}

__global__ void __launch_bounds__(kThreads) copy_pieces(const __grid_constant__ PieceJobs jobs, std::uint64_t* hashes) {
  const PieceJob& job = jobs.jobs[blockIdx.y];
  const std::uint64_t pieces = piece_count(job.bytes);
  const std::uint64_t piece = (std::uint64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  if (piece >= pieces) return;
  const int lane = threadIdx.x % kLanes;
  std::uint64_t secrets[kStripesPerBlock];
#pragma unroll
  for (int i = 0; i < kStripesPerBlock; ++i) secrets[i] = __ldg(kSecret + i + lane);
  const std::uint64_t begin = piece * kHashPieceBytes;
  const std::uint64_t bytes = piece + 1 == pieces ? job.bytes - begin : kHashPieceBytes;
  auto* const to = static_cast<std::uint8_t*>(job.to);
  const std::uint64_t hash = copy_piece(static_cast<const std::uint8_t*>(job.from) + begin,
                                        to == nullptr ? nullptr : to + begin, bytes, secrets, lane);
  if (lane == 0) hashes[job.first_piece + piece] = hash;
}

}  // namespace
}  // namespace levada::store

extern "C" __attribute__((visibility("default"))) int levada_copy_pieces(const levada::store::PieceJobs& jobs,
                                                                         std::uint64_t* hashes, void* stream) {
  using namespace levada::store;
  std::uint64_t most = 0;
  for (int i = 0; i < jobs.count; ++i) most = std::max(most, piece_count(jobs.jobs[i].bytes));
  const dim3 grid(static_cast<unsigned>((most * kLanes + kThreads - 1) / kThreads), static_cast<unsigned>(jobs.count));
  copy_pieces<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(jobs, hashes);
  return static_cast<int>(cudaGetLastError());
}
