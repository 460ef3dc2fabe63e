// What: the launchers behind the GPU's FusedKernels, one per kernel of norms.cu, rows.cu, loss.cu and attention*.cu.
// Owner: none; see fused.h for memory and contracts.
// Thread: any; work is queued on the given stream.
// Invariant: only host types here, so that fused_module.cc needs no device compiler.
#pragma once

#include <cuda_runtime_api.h>

#include "trainkernels/fused.h"

namespace levada::trainkernels::cuda {

void rms(Element, const Norm&, const void* x, const void* w, void* y, cudaStream_t);
void rms_backward(Element, const Norm&, const void* x, const void* w, const void* dy, bool accumulate, void* dx,
                  float* dw, float* partial, cudaStream_t);
void norm_rope(Element, const Heads&, const void* x, const void* w, void* out, std::int64_t out_stride, cudaStream_t);
void norm_rope_backward(Element, const Heads&, const void* x, const void* w, const void* dout, std::int64_t dout_stride,
                        void* dx, float* dw, float* partial, cudaStream_t);
void silu_mul(Element, std::int64_t rows, std::int64_t width, const void* gate_up, void* out, cudaStream_t);
void silu_mul_backward(Element, std::int64_t rows, std::int64_t width, const void* gate_up, const void* dout,
                       void* dgate_up, cudaStream_t);
void adamw(Element, const Adam&, std::int64_t count, const float* grad, float* master, float* first, float* second,
           void* weights, cudaStream_t);
void sum_of_squares(const float* values, std::int64_t count, double* partial, double* result, cudaStream_t);

void cross_entropy(Element, std::int64_t rows, std::int64_t width, const void* logits, const std::int64_t* labels,
                   float* nll, float* norm, std::int64_t* argmax, cudaStream_t);
void cross_entropy_backward(Element, std::int64_t rows, std::int64_t width, void* logits, const std::int64_t* labels,
                            const float* norm, const float* coefficient, cudaStream_t);
// Both at once; false: not for this type or width, nothing was queued.
bool cross_entropy_both(Element, std::int64_t rows, std::int64_t width, void* logits, const std::int64_t* labels,
                        float* nll, float* norm, std::int64_t* argmax, const float* coefficient, cudaStream_t);

// Any type and head_dim, without tensor cores.
void plain_attention(Element, const Attention&, cudaStream_t);
void plain_attention_backward(Element, const Attention&, cudaStream_t);
// Bf16 on tensor cores; false: not for this head_dim, nothing was queued.
bool tensor_attention(const Attention&, cudaStream_t);
bool tensor_attention_backward(const Attention&, cudaStream_t);

}  // namespace levada::trainkernels::cuda
