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

__constant__ std::uint8_t kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef,
    0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7,
    0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73,
    0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17,
    0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe,
    0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95,
    0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

__device__ std::uint64_t word_at(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
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
  const std::uint64_t mixed = own.sum ^ word_at(kSecret + 11 + 8 * own.lane);
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
  const std::uint64_t scrambler = word_at(kSecret + 128 + 8 * lane);
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
    own.take(data, word_at(kSecret + 8 * i + 8 * lane));
  }
  own.take(word_at(from + bytes - kStripeBytes + 8 * lane), word_at(kSecret + 121 + 8 * lane));
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
  for (int i = 0; i < kStripesPerBlock; ++i) secrets[i] = word_at(kSecret + 8 * i + 8 * lane);
  const std::uint64_t begin = piece * kPieceBytes;
  const std::uint64_t bytes = piece + 1 == pieces ? job.bytes - begin : kPieceBytes;
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
