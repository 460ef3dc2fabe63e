#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <type_traits>

#include "kernels/checks.h"
#include "kernels/cpu/scratch.h"
#include "kernels/gather.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/sampling.h"

namespace levada::kernels {
namespace {

// Below this many multiply-adds (or touched elements) a second thread costs more than it gives.
constexpr std::int64_t kWorkPerTask = 32 * 1024;
// Of a row that streams weights a few microseconds are enough.
constexpr std::int64_t kStreamedPerTask = 8 * 1024;
// Columns of linear come in cache lines of output, so that two threads don't write the same one.
constexpr std::int64_t kColumnGrain = 16;

WeightType weight_type(DType dtype) {
  if (dtype == DType::kF32) return WeightType::kF32;
  return dtype == DType::kBF16 ? WeightType::kBF16 : WeightType::kF16;
}

std::int64_t grain_of(std::int64_t work_per_item, std::int64_t multiple, std::int64_t work = kWorkPerTask) {
  const std::int64_t items = work / std::max<std::int64_t>(work_per_item, 1) + 1;
  return (items + multiple - 1) / multiple * multiple;
}

}  // namespace

void CpuOps::linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate) {
  check_linear(x, w, out);
  if (bf16_ != nullptr && w.dtype == DType::kBF16) return bf16_linear(x, w, out, accumulate);
  const LinearArgs args{.x = x.as<const float>(),
                        .x_stride = x.strides[0],
                        .w = w.data,
                        .w_type = weight_type(w.dtype),
                        .w_stride = w.strides[0],
                        .out = out.as<float>(),
                        .out_stride = out.strides[0],
                        .rows = x.shape[0],
                        .n = w.shape[0],
                        .k = w.shape[1],
                        .accumulate = accumulate};
  const std::int64_t grain = grain_of(args.rows * args.k, kColumnGrain, kStreamedPerTask);
  pool_.parallel_for(args.n, grain, [&](std::int64_t begin, std::int64_t end) {
    table_.linear(args, begin, end, thread_scratch(table_.linear_scratch(args.k)));
  });
}

void CpuOps::bf16_linear(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate) {
  const std::int64_t rows = x.shape[0], k = w.shape[1];
  if (static_cast<std::int64_t>(halved_.size()) < rows * k) halved_.resize(static_cast<std::size_t>(rows * k));
  pool_.parallel_for(rows, grain_of(k, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      bf16_->round(x.as<const float>() + r * x.strides[0], k, halved_.data() + r * k);
  });
  const Bf16Args args{.x = halved_.data(),
                      .x_stride = k,
                      .w = w.as<const Bf16>(),
                      .w_stride = w.strides[0],
                      .out = out.as<float>(),
                      .out_stride = out.strides[0],
                      .rows = rows,
                      .n = w.shape[0],
                      .k = k,
                      .accumulate = accumulate};
  pool_.parallel_for(args.n, grain_of(rows * k, kColumnGrain, kStreamedPerTask),
                     [&](std::int64_t begin, std::int64_t end) { bf16_->linear(args, begin, end); });
}

void CpuOps::linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) {
  quant_linear(x, w, out, accumulate, false);
}

void CpuOps::linear_rough(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate) {
  quant_linear(x, w, out, accumulate, w.format() == QuantFormat::kQ8_0);
}

void CpuOps::quant_linear(const TensorView& x, const QuantMatrix& w, const TensorView& out, bool accumulate,
                          bool rough) {
  if (quant_ == nullptr) return RefOps(pool_).linear(x, w, out, accumulate);
  check_linear(x, w, out);
  const std::int64_t rows = x.shape[0], k = w.columns(), blocks = k / 32;
  if (static_cast<std::int64_t>(rounded_.size()) < rows * blocks) {
    rounded_.resize(static_cast<std::size_t>(rows * blocks));
  }
  pool_.parallel_for(rows, grain_of(4 * k, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      quant_->round(x.as<const float>() + r * x.strides[0], k, rounded_.data() + r * blocks);
    }
  });
  const QuantArgs args{.x = rounded_.data(),
                       .panels = w.data(),
                       .format = w.format(),
                       .out = out.as<float>(),
                       .out_stride = out.strides[0],
                       .rows = rows,
                       .n = w.rows(),
                       .k = k,
                       .panel_bytes = w.panel_bytes(),
                       .accumulate = accumulate};
  const std::int64_t panels = (args.n + QuantMatrix::kPanelRows - 1) / QuantMatrix::kPanelRows;
  pool_.parallel_for(panels, grain_of(rows * k * QuantMatrix::kPanelRows / 4, 1, kStreamedPerTask),
                     [&](std::int64_t begin, std::int64_t end) {
                       const auto compute = rough ? quant_->linear_rough : quant_->linear;
                       compute(args, begin, end, thread_scratch(quant_->scratch(k)));
                     });
}

void CpuOps::norm(const NormArgs& args, std::int64_t rows) {
  pool_.parallel_for(rows, grain_of(args.heads * args.width, 1),
                     [&](std::int64_t begin, std::int64_t end) { table_.rms_norm(args, begin, end); });
}

void CpuOps::rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out) {
  check_rms_norm(x, w, out);
  norm({.x = x.as<const float>(),
        .out = out.as<float>(),
        .x_row_stride = x.strides[0],
        .x_head_stride = 0,
        .out_row_stride = out.strides[0],
        .out_head_stride = 0,
        .heads = 1,
        .width = x.shape[1],
        .w = w.as<const float>(),
        .eps = eps},
       x.shape[0]);
}

void CpuOps::rms_norm_heads(const TensorView& x, const TensorView& w, float eps) {
  check_rms_norm_heads(x, w);
  norm({.x = x.as<const float>(),
        .out = x.as<float>(),
        .x_row_stride = x.strides[0],
        .x_head_stride = x.strides[1],
        .out_row_stride = x.strides[0],
        .out_head_stride = x.strides[1],
        .heads = x.shape[1],
        .width = x.shape[2],
        .w = w.as<const float>(),
        .eps = eps},
       x.shape[0]);
}

void CpuOps::rope(const TensorView& x, const TensorView& cos_sin, std::span<const std::int32_t> positions) {
  check_rope(x, cos_sin, positions);
  const RopeArgs args{.x = x.as<float>(),
                      .row_stride = x.strides[0],
                      .head_stride = x.strides[1],
                      .heads = x.shape[1],
                      .width = x.shape[2],
                      .cos_sin = cos_sin.as<const float>(),
                      .cos_sin_stride = cos_sin.strides[0],
                      .positions = positions.data()};
  pool_.parallel_for(x.shape[0], grain_of(args.heads * args.width, 1),
                     [&](std::int64_t begin, std::int64_t end) { table_.rope(args, begin, end); });
}

void CpuOps::silu_mul(const TensorView& gate_up, const TensorView& out) {
  check_silu_mul(gate_up, out);
  const SiluMulArgs args{.gate_up = gate_up.as<const float>(),
                         .gate_up_stride = gate_up.strides[0],
                         .out = out.as<float>(),
                         .out_stride = out.strides[0],
                         .width = out.shape[1]};
  pool_.parallel_for(out.shape[0], grain_of(4 * args.width, 1),
                     [&](std::int64_t begin, std::int64_t end) { table_.silu_mul(args, begin, end); });
}

void CpuOps::embed(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out) {
  check_embed(table, ids, out);
  embed_rows(pool_, table, ids, out);
}

void CpuOps::write_kv(const TensorView& k, const TensorView& v, const PagedBatch& batch, const TensorView& k_plane,
                      const TensorView& v_plane) {
  check_write_kv(k, v, batch, k_plane, v_plane);
  write_kv_rows(pool_, k, v, batch, k_plane, v_plane);
}

std::int32_t CpuOps::sample(const TensorView& logits, const SampleParams& params) {
  return sample_token(logits, params);
}

}  // namespace levada::kernels
