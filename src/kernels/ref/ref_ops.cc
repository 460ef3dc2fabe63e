#include "kernels/ref/ref_ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/checks.h"
#include "kernels/f16.h"
#include "kernels/gather.h"
#include "kernels/ref/ref_quant.h"
#include "kernels/sampling.h"

namespace levada::kernels {
namespace {

double value_at(const TensorView& t, std::int64_t i) {
  if (t.dtype == DType::kF16) return to_float(t.as<const F16>()[i]);
  return t.dtype == DType::kBF16 ? to_float(t.as<const Bf16>()[i]) : t.as<const float>()[i];
}

void norm_row(const float* x, const float* w, float eps, std::int64_t width, float* out) {
  double squares = 0;
  for (std::int64_t i = 0; i < width; ++i) squares += double{x[i]} * x[i];
  const double root = std::sqrt(squares / static_cast<double>(width) + eps);
  for (std::int64_t i = 0; i < width; ++i) out[i] = static_cast<float>(w[i] * (x[i] / root));
}

// Where the KV head's vector of a position starts in a plane.
std::int64_t slot_of(const PagedBatch& batch, std::size_t s, std::int64_t position, std::int64_t head,
                     const TensorView& plane) {
  const std::int64_t entry = batch.block_table_first[s] + position / batch.page_size;
  const std::int64_t page = batch.block_tables[static_cast<std::size_t>(entry)];
  return page * plane.strides[0] + position % batch.page_size * plane.strides[1] + head * plane.strides[2];
}

// One head of row i of slice s: softmax(scale q k) v over positions [first_key, context + i].
void attend_row(const float* q, const PagedBatch& batch, std::size_t s, std::int64_t i, std::int64_t kv_head,
                const TensorView& k_plane, const TensorView& v_plane, float scale, float* out) {
  const std::int64_t d = k_plane.shape[3], first = batch.first_key.empty() ? 0 : batch.first_key[s];
  const std::int64_t keys = std::int64_t{batch.context[s]} + i + 1 - first;
  std::vector<double> weights(static_cast<std::size_t>(keys)), sums(static_cast<std::size_t>(d));
  for (std::int64_t p = 0; p < keys; ++p) {
    const std::int64_t at = slot_of(batch, s, first + p, kv_head, k_plane);
    double dot = 0;
    for (std::int64_t e = 0; e < d; ++e) dot += q[e] * value_at(k_plane, at + e);
    weights[static_cast<std::size_t>(p)] = dot * scale;
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  for (std::int64_t p = 0; p < keys; ++p) {
    const std::int64_t at = slot_of(batch, s, first + p, kv_head, v_plane);
    for (std::int64_t e = 0; e < d; ++e) {
      sums[static_cast<std::size_t>(e)] += weights[static_cast<std::size_t>(p)] * value_at(v_plane, at + e);
    }
  }
  for (std::int64_t e = 0; e < d; ++e) out[e] = static_cast<float>(sums[static_cast<std::size_t>(e)] / total);
}

}  // namespace

void RefOps::linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate) {
  check_linear(x, w, out);
  for (std::int64_t r = 0; r < x.shape[0]; ++r) {
    for (std::int64_t n = 0; n < w.shape[0]; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < w.shape[1]; ++k) {
        sum += x.as<const float>()[r * x.strides[0] + k] * value_at(w, n * w.strides[0] + k);
      }
      float& to = out.as<float>()[r * out.strides[0] + n];
      to = static_cast<float>(accumulate ? to + sum : sum);
    }
  }
}

void RefOps::linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) {
  check_linear(x, w, out);
  std::vector<std::byte> blocks(static_cast<std::size_t>(w.row_bytes()));
  std::vector<float> weights(static_cast<std::size_t>(w.columns()));
  for (std::int64_t n = 0; n < w.rows(); ++n) {
    w.row(n, blocks.data());
    dequantize_row(w.format(), blocks.data(), w.columns(), weights.data());
    TensorView column = out;
    column.data = out.as<float>() + n;
    column.shape[1] = 1;
    linear(x, TensorView::of(weights.data(), DType::kF32, {1, w.columns()}), column, accumulate);
  }
}

void RefOps::rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out) {
  check_rms_norm(x, w, out);
  for (std::int64_t r = 0; r < x.shape[0]; ++r) {
    norm_row(x.as<const float>() + r * x.strides[0], w.as<const float>(), eps, x.shape[1],
             out.as<float>() + r * out.strides[0]);
  }
}

void RefOps::rms_norm_heads(const TensorView& x, const TensorView& w, float eps) {
  check_rms_norm_heads(x, w);
  for (std::int64_t r = 0; r < x.shape[0]; ++r) {
    for (std::int64_t h = 0; h < x.shape[1]; ++h) {
      float* head = x.as<float>() + r * x.strides[0] + h * x.strides[1];
      norm_row(head, w.as<const float>(), eps, x.shape[2], head);
    }
  }
}

void RefOps::rope(const TensorView& x, const TensorView& cos_sin, std::span<const std::int32_t> positions) {
  check_rope(x, cos_sin, positions);
  const std::int64_t half = x.shape[2] / 2;
  for (std::int64_t r = 0; r < x.shape[0]; ++r) {
    const float* c = cos_sin.as<const float>() + positions[static_cast<std::size_t>(r)] * cos_sin.strides[0];
    const float* s = c + half;
    for (std::int64_t h = 0; h < x.shape[1]; ++h) {
      float* v = x.as<float>() + r * x.strides[0] + h * x.strides[1];
      for (std::int64_t j = 0; j < half; ++j) {
        const double a = v[j], b = v[j + half];
        v[j] = static_cast<float>(a * c[j] - b * s[j]);
        v[j + half] = static_cast<float>(b * c[j] + a * s[j]);
      }
    }
  }
}

void RefOps::silu_mul(const TensorView& gate_up, const TensorView& out) {
  check_silu_mul(gate_up, out);
  for (std::int64_t r = 0; r < out.shape[0]; ++r) {
    const float* gate = gate_up.as<const float>() + r * gate_up.strides[0];
    const float* up = gate + out.shape[1];
    for (std::int64_t i = 0; i < out.shape[1]; ++i) {
      const double silu = gate[i] / (1 + std::exp(-double{gate[i]}));
      out.as<float>()[r * out.strides[0] + i] = static_cast<float>(silu * up[i]);
    }
  }
}

void RefOps::embed(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out) {
  check_embed(table, ids, out);
  embed_rows(pool_, table, ids, out);
}

void RefOps::write_kv(const TensorView& k, const TensorView& v, const PagedBatch& batch, const TensorView& k_plane,
                      const TensorView& v_plane) {
  check_write_kv(k, v, batch, k_plane, v_plane);
  write_kv_rows(pool_, k, v, batch, k_plane, v_plane);
}

void RefOps::paged_attention(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                             const TensorView& v_plane, float scale, const TensorView& out) {
  check_paged_attention(q, batch, k_plane, v_plane, out);
  const std::int64_t group = q.shape[1] / k_plane.shape[2];
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    for (std::int64_t i = 0; i < batch.rows[s]; ++i) {
      const std::int64_t row = batch.first_row[s] + i;
      for (std::int64_t h = 0; h < q.shape[1]; ++h) {
        attend_row(q.as<const float>() + row * q.strides[0] + h * q.strides[1], batch, s, i, h / group, k_plane,
                   v_plane, scale, out.as<float>() + row * out.strides[0] + h * out.strides[1]);
      }
    }
  }
}

std::int32_t RefOps::sample(const TensorView& logits, const SampleParams& params) {
  return sample_token(logits, params);
}

}  // namespace levada::kernels
