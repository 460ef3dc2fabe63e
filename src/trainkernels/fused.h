// What: FusedKernels, the kernels of draft training where attention is one kernel instead of products around a softmax:
// what the GPU trains with. A block row attends to two sets of keys, its sample's context and its own block, with one
// softmax over both; no score and no mask ever lies in memory.
// Owner: the trainer's operations; all memory is the caller's and lies where the kernels run.
// Thread: one at a time. Work is queued on the current device's default stream, which is libtorch's too: it is done in
// order with libtorch's products, and nothing here waits for it.
// Invariant: activations are float or Bf16 (`Element`), arithmetic float32, rounded where the reference rounds its
// activations. Sums go through partial sums in a fixed order: equal inputs give equal bits.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "trainkernels/rows.h"

namespace levada::trainkernels {

enum class Element : std::uint8_t { kFloat, kBf16 };

// Rows of partial sums that backward passes of norms need: `partial` holds this many rows of the norm's width.
inline constexpr std::int64_t kPartialRows = 1056;
// The widest rows of a norm; their number is even.
inline constexpr std::int64_t kMostColumns = 8192;

// Up to kTileRows neighbouring query rows of one sample and, per key set, the keys that any of them sees.
struct QueryTile {
  std::int32_t first_row = 0, rows = 0;
  std::int32_t key_begin[2] = {}, key_end[2] = {};  // [0] context, [1] block rows
};
// Up to kTileRows neighbouring keys of one set and the query rows that see any of them.
struct KeyTile {
  std::int32_t set = 0, first_key = 0, keys = 0;
  std::int32_t row_begin = 0, row_end = 0;
};
inline constexpr std::int32_t kTileRows = 64;

// One set of keys and values: row i, head h at [i * stride + h * head_dim]; so lie their gradients.
struct Keys {
  const void* k = nullptr;
  const void* v = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t k_stride = 0, v_stride = 0, dk_stride = 0, dv_stride = 0;
};

// Row r of `rows` lies in block r / block and sees context keys [key_begin[r], key_end[r]) and the first own_end[r] rows of
// its block. Strides are in elements and, like head_dim, multiples of 8; head_dim is at most 256.
struct Attention {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0, block = 0;
  float scale = 1;
  const void* q = nullptr;
  void* out = nullptr;
  const void* dout = nullptr;
  void* dq = nullptr;
  std::int64_t q_stride = 0, out_stride = 0, dout_stride = 0, dq_stride = 0;
  float* lse = nullptr;    // [rows, heads]; -infinity for a row that sees nothing, whose output is 0
  float* delta = nullptr;  // [rows, heads], backward's own
  Keys keys[2];
  const std::int64_t* key_begin = nullptr;
  const std::int64_t* key_end = nullptr;
  const std::int64_t* own_end = nullptr;
  const QueryTile* query_tiles = nullptr;
  const KeyTile* key_tiles = nullptr;
  std::int64_t query_tile_count = 0, key_tile_count = 0;
};

class FusedKernels {
 public:
  virtual ~FusedKernels() = default;
  // kInternal: the device refused the work. Shapes are the caller's contract.
  virtual Status rms(Element type, const Norm& norm, const void* x, const void* w, void* y) = 0;
  // dx = (or +=), dw +=
  virtual Status rms_backward(Element type, const Norm& norm, const void* x, const void* w, const void* dy,
                              bool accumulate, void* dx, float* dw, float* partial) = 0;
  // Row-major to row-major; per_group is unread.
  virtual Status norm_rope(Element type, const Heads& heads, const void* x, const void* w, void* out,
                           std::int64_t out_stride) = 0;
  // dx lies as x does. dw +=
  virtual Status norm_rope_backward(Element type, const Heads& heads, const void* x, const void* w, const void* dout,
                                    std::int64_t dout_stride, void* dx, float* dw, float* partial) = 0;
  virtual Status silu_mul(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, void* out) = 0;
  virtual Status silu_mul_backward(Element type, std::int64_t rows, std::int64_t width, const void* gate_up,
                                   const void* dout, void* dgate_up) = 0;
  virtual Status attention(Element type, const Attention& attention) = 0;
  // Overwrites dq and every key's dk and dv that a key tile covers.
  virtual Status attention_backward(Element type, const Attention& attention) = 0;
  // As Rows<T> has them.
  virtual Status cross_entropy(Element type, std::int64_t rows, std::int64_t width, const void* logits,
                               const std::int64_t* labels, float* nll, float* norm, std::int64_t* argmax) = 0;
  virtual Status cross_entropy_backward(Element type, std::int64_t rows, std::int64_t width, void* logits,
                                        const std::int64_t* labels, const float* norm, const float* coefficient) = 0;
  // One after the other.
  virtual Status cross_entropy_both(Element type, std::int64_t rows, std::int64_t width, void* logits,
                                    const std::int64_t* labels, float* nll, float* norm, std::int64_t* argmax,
                                    const float* coefficient) {
    LEVADA_RETURN_IF_ERROR(cross_entropy(type, rows, width, logits, labels, nll, norm, argmax));
    return cross_entropy_backward(type, rows, width, logits, labels, norm, coefficient);
  }
  virtual Status adamw(Element type, const Adam& adam, std::int64_t count, const float* grad, float* master,
                       float* first, float* second, void* weights) = 0;
  // *result (on the device) = sum of squares; partial: kPartialRows doubles.
  virtual Status sum_of_squares(const float* values, std::int64_t count, double* partial, double* result) = 0;
};

// Plain loops on the CPU: what the GPU's kernels are compared with, and what CI trains with in their place.
std::unique_ptr<FusedKernels> make_reference_kernels();

// The symbol of liblevada_cuda.so that makes the GPU's.
inline constexpr const char* kMakeFusedKernels = "levada_make_fused_kernels";
using MakeFusedKernels = void(std::unique_ptr<FusedKernels>* result);

}  // namespace levada::trainkernels
