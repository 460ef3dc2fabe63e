// What: the CPU kernels a decoder layer is made of, as launchers on TensorView. One table (Ops) per instruction set.
// Owner: all memory is the caller's.
// Thread: one caller at a time per ThreadPool. Invariant (batch invariance): a row's result depends on that row's
// inputs alone, never on how many rows there are, on where a chunk was cut or on the number of threads: every output
// element is summed in one fixed order. This makes chunked == whole, batch == solo and warm == cold hold bit for bit in
// float32. Activations are float32. Weights may be float32, bfloat16, float16 or quantised, KV float32 or bfloat16. `ref/` holds the plain twins that tests
// compare with.
// Formulas: docs/models.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/tensor_view.h"
#include "kernels/quant.h"
#include "kernels/thread_pool.h"

namespace levada::kernels {

using device::TensorView;

// Geometry of one batch over the paged cache. Slice s owns rows [first_row[s], first_row[s] + rows[s]); its row i is
// the token at position context[s] + i and attends positions [0, context[s] + i]. Position p lies in page
// block_tables[block_table_first[s] + p / page_size] at slot p % page_size.
struct PagedBatch {
  std::span<const std::int32_t> first_row, rows, context, block_table_first;
  std::span<const std::int32_t> block_tables;
  std::int32_t page_size = 0;
  // Rows of slice s attend no position before first_key[s]; empty: from 0 on. At most context[s].
  std::span<const std::int32_t> first_key = {};
};

// Parameters of one sampled row; see core::SampleRow for the meaning.
struct SampleParams {
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  float frequency_penalty = 0, presence_penalty = 0, repetition_penalty = 1;
  std::span<const std::int32_t> prompt_history, output_history;  // used by penalties only
  std::span<const std::int32_t> banned;
  std::span<const std::int32_t> bias_ids;  // each once
  std::span<const float> bias_values;
  std::span<const std::uint32_t> mask;  // bit i % 32 of word i / 32 allows id i; empty: all are
  std::uint64_t seed = 0;
  std::int32_t position = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual std::string name() const = 0;        // "ref", "avx2", "avx512", "avx512_bf16"
  virtual std::string quant_name() const = 0;  // of the kernels on quantised weights: "ref", "avx2", "avx512-vnni", …

  // out[r, n] = sum_k x[r, k] * w[n, k] (+ out[r, n] if accumulate). x, out: f32 [R,K], [R,N], rows may be strided;
  // w: f32, bf16 or f16 [N,K]. "avx512_bf16" rounds x to bfloat16 where w is bf16, as PyTorch has it in bfloat16:
  // |error| <= sum_k |w[n, k] * x[r, k]| / 512, float32 rounding apart.
  virtual void linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate) = 0;
  // The same with weights as a GGUF file stores them. Tuned tables round each row of x to two bytes, in blocks of 32:
  // |error| <= sum_k |w[n, k]| * max|x of k's block| / 64516, float32 rounding apart.
  virtual void linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) = 0;
  // For guesses, whose errors cost time and nothing else: tuned tables round each row of x to one byte, in blocks of 32,
  // where w is Q8_0: |error| <= sum_k |w[n, k]| * max|x of k's block| / 253, float32 rounding apart. Else as linear().
  virtual void linear_rough(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) = 0;
  // out[r] = w * (x[r] / sqrt(mean(x[r]^2) + eps)). f32 [R,H]; w f32 [H]; out may be x.
  virtual void rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out) = 0;
  // As above per head over the last dimension of x: f32 [R, heads, d], rows may be strided (qwen3's q/k norm).
  virtual void rms_norm_heads(const TensorView& x, const TensorView& w, float eps) = 0;
  // Half-split rotation in place. x: f32 [R, heads, d], rows may be strided; cos_sin: f32 [max_positions, d]: d/2
  // cosines, then d/2 sines.
  virtual void rope(const TensorView& x, const TensorView& cos_sin, std::span<const std::int32_t> positions) = 0;
  // out[r, i] = silu(gate_up[r, i]) * gate_up[r, I + i]. f32 [R, 2I] -> [R, I].
  virtual void silu_mul(const TensorView& gate_up, const TensorView& out) = 0;
  // out[r] = table[ids[r]]. table f32, bf16 or f16 [V,H]; out f32 [R,H].
  virtual void embed(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out) = 0;
  void embed(const QuantMatrix& table, std::span<const std::int32_t> ids, const TensorView& out);
  // Writes k and v rows of the batch to their slots. k, v: f32 [R, kv_heads, d], rows may be strided;
  // planes: f32 or bf16 [pages, page_size, kv_heads, d]; tokens may lie further apart than their numbers.
  virtual void write_kv(const TensorView& k, const TensorView& v, const PagedBatch& batch, const TensorView& k_plane,
                        const TensorView& v_plane) = 0;
  // Causal attention over the paged cache (the batch's own rows already written), softmax in f32.
  // q, out: f32 [R, heads, d], rows may be strided; heads is a multiple of kv_heads.
  virtual void paged_attention(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                               const TensorView& v_plane, float scale, const TensorView& out) = 0;
  // Chooses one token. logits: f32 [V], clobbered. Order: penalties, biases, mask, banned, greedy (temperature 0) or
  // temperature, top-k, top-p, min-p, draw with a counter-based generator keyed by (seed, position). Ties go to the lowest id.
  // Calls on different logits may run on several threads at once, the pool's included.
  virtual std::int32_t sample(const TensorView& logits, const SampleParams& params) = 0;
};

// The fastest table this CPU supports, or the named one ("ref", "avx2", "avx512", "avx512_bf16"; nullptr when not
// supported here).
std::unique_ptr<Ops> make_cpu_ops(ThreadPool& pool, const std::string& name = "");

}  // namespace levada::kernels
