#include "nn/fused_attention.h"

#include <cmath>

#include "nn/fused_support.h"

namespace levada::nn {

namespace tk = trainkernels;

namespace {

tk::Heads heads_of(const at::Tensor& x, std::int64_t heads, const DraftGeometry& g, const at::Tensor& angles) {
  tk::Heads out;
  out.rows = x.size(0);
  out.stride = x.stride(0);
  out.heads = heads;
  out.head_dim = g.head_dim;
  out.eps = g.eps;
  out.cos_sin = angles.data_ptr<float>();
  return out;
}

}  // namespace

at::Tensor FusedAttention::rotated(const char* name, const at::Tensor& x, std::int64_t first_column, std::int64_t heads,
                                   const at::Tensor& w, const at::Tensor& angles) {
  const at::Tensor out = scratch_.get(name, {x.size(0), heads * geometry_.head_dim}, x.scalar_type());
  must(kernels_.norm_rope(element_of(x), heads_of(x, heads, geometry_, angles), column_of(x, first_column),
                          w.data_ptr(), out.data_ptr(), out.size(1)));
  return out;
}

void FusedAttention::rotated_backward(const at::Tensor& x, std::int64_t first_column, std::int64_t heads,
                                      const at::Tensor& w, const at::Tensor& angles, const at::Tensor& dout,
                                      const at::Tensor& dx, const at::Tensor& dw) {
  TORCH_CHECK(dx.strides() == x.strides(), "a gradient lies as its input does");
  const at::Tensor partial = scratch_.get("partial sums", {tk::kPartialRows * geometry_.head_dim}, at::kFloat);
  must(kernels_.norm_rope_backward(element_of(x), heads_of(x, heads, geometry_, angles), column_of(x, first_column),
                                   w.data_ptr(), dout.data_ptr(), dout.size(1), column_of(dx, first_column),
                                   dw.data_ptr<float>(), partial.data_ptr<float>()));
}

tk::Attention FusedAttention::attention_of(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                                           const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& lse) {
  const DraftGeometry& g = geometry_;
  const int kind = window > 0 ? 1 : 0;
  const std::int64_t k = g.q_width(), v = k + g.kv_width();
  tk::Attention a;
  a.rows = batch.rows();
  a.heads = g.heads;
  a.kv_heads = g.kv_heads;
  a.head_dim = g.head_dim;
  a.block = batch.block;
  a.scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim));
  a.q = rotated("attention.q", qkv, 0, g.heads, w.q_norm, batch.row_angles).data_ptr();
  a.q_stride = g.q_width();
  a.lse = lse.data_ptr<float>();
  a.keys[1].k = rotated("attention.k", qkv, k, g.kv_heads, w.k_norm, batch.row_angles).data_ptr();
  a.keys[1].k_stride = g.kv_width();
  a.keys[1].v = column_of(qkv, v);
  a.keys[1].v_stride = qkv.stride(0);
  a.keys[0].k = rotated("attention.context_k", context_kv, 0, g.kv_heads, w.k_norm, batch.key_angles).data_ptr();
  a.keys[0].k_stride = g.kv_width();
  a.keys[0].v = column_of(context_kv, g.kv_width());
  a.keys[0].v_stride = context_kv.stride(0);
  a.key_begin = batch.key_begin[kind].data_ptr<std::int64_t>();
  a.key_end = batch.key_end[kind].data_ptr<std::int64_t>();
  a.own_end = batch.own_end[kind].data_ptr<std::int64_t>();
  a.query_tiles = static_cast<const tk::QueryTile*>(batch.query_tiles[kind].data_ptr());
  a.key_tiles = static_cast<const tk::KeyTile*>(batch.key_tiles[kind].data_ptr());
  a.query_tile_count = batch.query_tiles[kind].size(0);
  a.key_tile_count = batch.key_tiles[kind].size(0);
  return a;
}

void FusedAttention::forward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                             const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& out,
                             const at::Tensor& lse) {
  tk::Attention a = attention_of(batch, window, w, qkv, context_kv, lse);
  a.out = out.data_ptr();
  a.out_stride = out.stride(0);
  must(kernels_.attention(element_of(qkv), a));
}

void FusedAttention::backward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                              const DraftLayerTensors& dw, const at::Tensor& qkv, const at::Tensor& context_kv,
                              const at::Tensor& out, const at::Tensor& dout, const at::Tensor& lse,
                              const at::Tensor& dqkv, const at::Tensor& dcontext_kv) {
  const DraftGeometry& g = geometry_;
  const auto type = qkv.scalar_type();
  const std::int64_t k = g.q_width(), v = k + g.kv_width();
  const at::Tensor dq = scratch_.get("attention.dq", {batch.rows(), g.q_width()}, type);
  const at::Tensor dk = scratch_.get("attention.dk", {batch.rows(), g.kv_width()}, type);
  const at::Tensor dcontext_k = scratch_.get("attention.context_dk", {batch.keys(), g.kv_width()}, type);
  tk::Attention a = attention_of(batch, window, w, qkv, context_kv, lse);
  a.out = out.data_ptr();
  a.out_stride = out.stride(0);
  a.dout = dout.data_ptr();
  a.dout_stride = dout.stride(0);
  a.dq = dq.data_ptr();
  a.dq_stride = dq.stride(0);
  a.delta = scratch_.get("attention.delta", {batch.rows() * g.heads}, at::kFloat).data_ptr<float>();
  a.keys[0].dk = dcontext_k.data_ptr();
  a.keys[0].dv = column_of(dcontext_kv, g.kv_width());
  a.keys[1].dk = dk.data_ptr();
  a.keys[1].dv = column_of(dqkv, v);
  a.keys[0].dk_stride = a.keys[1].dk_stride = g.kv_width();
  a.keys[0].dv_stride = dcontext_kv.stride(0);
  a.keys[1].dv_stride = dqkv.stride(0);
  must(kernels_.attention_backward(element_of(qkv), a));

  rotated_backward(qkv, 0, g.heads, w.q_norm, batch.row_angles, dq, dqkv, dw.q_norm);
  rotated_backward(qkv, k, g.kv_heads, w.k_norm, batch.row_angles, dk, dqkv, dw.k_norm);
  if (batch.keys() == 0) return;
  rotated_backward(context_kv, 0, g.kv_heads, w.k_norm, batch.key_angles, dcontext_k, dcontext_kv, dw.k_norm);
}

BlockAttention::Context FusedAttention::project_context(const DraftBatch& batch, const DraftLayerTensors& w,
                                                        const at::Tensor& context_kv) {
  const DraftGeometry& g = geometry_;
  auto heads_first = [&](const at::Tensor& x) { return x.unflatten(1, {g.kv_heads, g.head_dim}).transpose(0, 1); };
  const at::Tensor k = rotated("attention.context_k", context_kv, 0, g.kv_heads, w.k_norm, batch.key_angles);
  return {heads_first(k), heads_first(context_kv.narrow(1, g.kv_width(), g.kv_width()))};
}

}  // namespace levada::nn
