// What: a decoder's weights in device memory, in the form its kernels take: q, k, v as one matrix, gate and up as one.
// Owner: the CUDA model; views borrow.
// Thread: loading on the caller's; afterwards immutable.
// Invariant: matrices have the model's float type, norm weights are float32. One allocation per matrix: a view's address
// never changes.
#pragma once

#include <vector>

#include "model/cuda/factory.h"

namespace levada::model {

// T [N, K], or f8_e4m3 with the scales of its 128 x 128 blocks as kernels/cuda/linear.h takes them.
struct CudaMatrix {
  device::TensorView numbers, scale;
};

struct CudaLayerWeights {
  device::TensorView input_norm, post_norm, q_norm, k_norm;  // f32; q_norm, k_norm without data where there are none
  CudaMatrix qkv, o, gate_up, down;
  LayerKvScales kv_scales;  // of a float8 KV cache "scaled by layer"
};

class CudaWeights {
 public:
  // kResourceExhausted with the bytes when they don't fit.
  static Result<CudaWeights> load(DecoderSource& source, DType dtype, device::Device& device);

  device::TensorView embedding, final_norm, head, cos_sin;
  std::vector<CudaLayerWeights> layers;
  std::int64_t bytes() const { return bytes_; }
  // Widths of the largest product with float8 numbers; 0, 0 if there is none.
  std::int64_t f8_inputs() const { return f8_inputs_; }
  std::int64_t f8_outputs() const { return f8_outputs_; }

 private:
  class Loader;
  std::vector<std::unique_ptr<device::DeviceBuffer>> buffers_;
  std::int64_t bytes_ = 0, f8_inputs_ = 0, f8_outputs_ = 0;
};

}  // namespace levada::model
