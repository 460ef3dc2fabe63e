// The GPU's FusedKernels: launches, and what the driver said about them.
#include "trainkernels/cuda/launchers.h"

namespace levada::trainkernels {
namespace {

constexpr cudaStream_t kDefaultStream = nullptr;

class CudaKernels final : public FusedKernels {
 public:
  Status rms(Element type, const Norm& norm, const void* x, const void* w, void* y) override {
    if (norm.rows == 0) return {};
    cuda::rms(type, norm, x, w, y, kDefaultStream);
    return launched("rms");
  }
  Status rms_backward(Element type, const Norm& norm, const void* x, const void* w, const void* dy, bool accumulate,
                      void* dx, float* dw, float* partial) override {
    if (norm.rows == 0) return {};
    cuda::rms_backward(type, norm, x, w, dy, accumulate, dx, dw, partial, kDefaultStream);
    return launched("rms_backward");
  }
  Status norm_rope(Element type, const Heads& heads, const void* x, const void* w, void* out,
                   std::int64_t out_stride) override {
    if (heads.rows == 0) return {};
    cuda::norm_rope(type, heads, x, w, out, out_stride, kDefaultStream);
    return launched("norm_rope");
  }
  Status norm_rope_backward(Element type, const Heads& heads, const void* x, const void* w, const void* dout,
                            std::int64_t dout_stride, void* dx, float* dw, float* partial) override {
    if (heads.rows == 0) return {};
    cuda::norm_rope_backward(type, heads, x, w, dout, dout_stride, dx, dw, partial, kDefaultStream);
    return launched("norm_rope_backward");
  }
  Status silu_mul(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, void* out) override {
    if (rows == 0) return {};
    cuda::silu_mul(type, rows, width, gate_up, out, kDefaultStream);
    return launched("silu_mul");
  }
  Status silu_mul_backward(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, const void* dout,
                           void* dgate_up) override {
    if (rows == 0) return {};
    cuda::silu_mul_backward(type, rows, width, gate_up, dout, dgate_up, kDefaultStream);
    return launched("silu_mul_backward");
  }
  Status attention(Element type, const Attention& a) override {
    if (a.rows == 0) return {};
    if (type != Element::kBf16 || !cuda::tensor_attention(a, kDefaultStream))
      cuda::plain_attention(type, a, kDefaultStream);
    return launched("attention");
  }
  Status attention_backward(Element type, const Attention& a) override {
    if (a.rows == 0) return {};
    if (type != Element::kBf16 || !cuda::tensor_attention_backward(a, kDefaultStream)) {
      cuda::plain_attention_backward(type, a, kDefaultStream);
    }
    return launched("attention_backward");
  }
  Status cross_entropy(Element type, std::int64_t rows, std::int64_t width, const void* logits,
                       const std::int64_t* labels, float* nll, float* norm, std::int64_t* argmax) override {
    if (rows == 0) return {};
    cuda::cross_entropy(type, rows, width, logits, labels, nll, norm, argmax, kDefaultStream);
    return launched("cross_entropy");
  }
  Status cross_entropy_backward(Element type, std::int64_t rows, std::int64_t width, void* logits,
                                const std::int64_t* labels, const float* norm, const float* coefficient) override {
    if (rows == 0) return {};
    cuda::cross_entropy_backward(type, rows, width, logits, labels, norm, coefficient, kDefaultStream);
    return launched("cross_entropy_backward");
  }
  Status cross_entropy_both(Element type, std::int64_t rows, std::int64_t width, void* logits,
                            const std::int64_t* labels, float* nll, float* norm, std::int64_t* argmax,
                            const float* coefficient) override {
    if (rows > 0 &&
        cuda::cross_entropy_both(type, rows, width, logits, labels, nll, norm, argmax, coefficient, kDefaultStream)) {
      return launched("cross_entropy_both");
    }
    return FusedKernels::cross_entropy_both(type, rows, width, logits, labels, nll, norm, argmax, coefficient);
  }
  Status adamw(Element type, const Adam& adam, std::int64_t count, const float* grad, float* master, float* first,
               float* second, void* weights) override {
    if (count == 0) return {};
    cuda::adamw(type, adam, count, grad, master, first, second, weights, kDefaultStream);
    return launched("adamw");
  }
  Status sum_of_squares(const float* values, std::int64_t count, double* partial, double* result) override {
    cuda::sum_of_squares(values, count, partial, result, kDefaultStream);
    return launched("sum_of_squares");
  }

 private:
  static Status launched(const char* kernel) {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return {};
    return internal_error(std::string("CUDA: training kernel ") + kernel + ": " + cudaGetErrorString(error));
  }
};

}  // namespace
}  // namespace levada::trainkernels

extern "C" __attribute__((visibility("default"))) void levada_make_fused_kernels(
    std::unique_ptr<levada::trainkernels::FusedKernels>* result) {
  *result = std::make_unique<levada::trainkernels::CudaKernels>();
}
