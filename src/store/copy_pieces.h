// What: the part of liblevada_cuda.so that copies objects and hashes their pieces in one pass.
// Owner: BatchCopier, the one caller.
// Thread: any; enqueued on the caller's stream.
// Invariant: the module and the binary come from the same build.
// The CPU twin is piece_hash() after a copy.
#pragma once

#include <cstdint>

namespace levada::store {

// Copies are described to the kernel by value.
struct PieceJob {
  const void* from;
  void* to;  // null: only hashed
  std::uint64_t bytes;
  std::uint64_t first_piece;  // where its values begin in `hashes`
};
inline constexpr int kPieceJobs = 64;
struct PieceJobs {
  PieceJob jobs[kPieceJobs];
  int count;
};
// Shorter objects the processor hashes itself.
inline constexpr std::uint64_t kShortestOnGpu = 241;

inline constexpr const char* kCopyPieces = "levada_copy_pieces";
// Returns a cudaError_t. `hashes` may be page-locked memory of the host. REQUIRES: every job has at least kShortestOnGpu
// bytes at multiples of 8; at multiples of 16 it is quicker.
using CopyPieces = int(const PieceJobs& jobs, std::uint64_t* hashes, void* stream);

}  // namespace levada::store
