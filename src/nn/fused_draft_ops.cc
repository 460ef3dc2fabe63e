#include "nn/fused_draft_ops.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "device/module.h"
#include "nn/fused_attention.h"
#include "nn/fused_support.h"

namespace levada::nn {
namespace {

namespace tk = trainkernels;

class FusedDraftOps final : public DraftOps {
 public:
  FusedDraftOps(std::unique_ptr<tk::FusedKernels> kernels, at::Device place)
      : kernels_(std::move(kernels)), place_(place), scratch_(place) {}
  at::Device place() const override { return place_; }
  std::unique_ptr<BlockAttention> make_attention(const DraftGeometry& geometry, Scratch& scratch) override {
    TORCH_CHECK(geometry.head_dim % 8 == 0 && geometry.head_dim <= 256,
                "head_dim must be a multiple of 8 and at most 256 for training on this device, got ",
                geometry.head_dim);
    TORCH_CHECK(geometry.hidden % 2 == 0 && geometry.hidden <= tk::kMostColumns,
                "hidden_size must be even and at most ", tk::kMostColumns, " for training on this device, got ",
                geometry.hidden);
    return std::make_unique<FusedAttention>(geometry, *kernels_, scratch);
  }

  void rms(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& y) override {
    must(kernels_->rms(element_of(x), {x.size(0), x.size(1), eps}, x.data_ptr(), w.data_ptr(), y.data_ptr()));
  }
  void rms_backward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy, float eps, bool accumulate,
                    const at::Tensor& dx, const at::Tensor& dw) override {
    const at::Tensor partial = scratch_.get("partial sums", {tk::kPartialRows * x.size(1)}, at::kFloat);
    must(kernels_->rms_backward(element_of(x), {x.size(0), x.size(1), eps}, x.data_ptr(), w.data_ptr(), dy.data_ptr(),
                                accumulate, dx.data_ptr(), dw.data_ptr<float>(), partial.data_ptr<float>()));
  }
  void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) override {
    must(kernels_->silu_mul(element_of(out), out.size(0), out.size(1), gate_up.data_ptr(), out.data_ptr()));
  }
  void silu_mul_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up) override {
    must(kernels_->silu_mul_backward(element_of(dout), dout.size(0), dout.size(1), gate_up.data_ptr(), dout.data_ptr(),
                                     dgate_up.data_ptr()));
  }
  void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& nll, const at::Tensor& norm,
                     const at::Tensor& argmax) override {
    must(kernels_->cross_entropy(element_of(logits), logits.size(0), logits.size(1), logits.data_ptr(),
                                 labels.data_ptr<std::int64_t>(), nll.data_ptr<float>(), norm.data_ptr<float>(),
                                 argmax.data_ptr<std::int64_t>()));
  }
  void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& norm,
                              const at::Tensor& coefficient) override {
    must(kernels_->cross_entropy_backward(element_of(logits), logits.size(0), logits.size(1), logits.data_ptr(),
                                          labels.data_ptr<std::int64_t>(), norm.data_ptr<float>(),
                                          coefficient.data_ptr<float>()));
  }
  void cross_entropy_both(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& nll,
                          const at::Tensor& norm, const at::Tensor& argmax, const at::Tensor& coefficient) override {
    must(kernels_->cross_entropy_both(element_of(logits), logits.size(0), logits.size(1), logits.data_ptr(),
                                      labels.data_ptr<std::int64_t>(), nll.data_ptr<float>(), norm.data_ptr<float>(),
                                      argmax.data_ptr<std::int64_t>(), coefficient.data_ptr<float>()));
  }
  void adamw(const AdamStep& step, const at::Tensor& grad, const at::Tensor& master, const at::Tensor& first,
             const at::Tensor& second, const at::Tensor& weights) override {
    tk::Adam adam;
    adam.learning_rate = step.learning_rate;
    adam.weight_decay = step.weight_decay;
    adam.grad_scale = static_cast<float>(step.grad_scale);
    adam.correction1 = 1 - std::pow(0.9, static_cast<double>(step.step));
    adam.correction2 = 1 - std::pow(0.999, static_cast<double>(step.step));
    must(kernels_->adamw(element_of(weights), adam, master.numel(), grad.data_ptr<float>(), master.data_ptr<float>(),
                         first.data_ptr<float>(), second.data_ptr<float>(), weights.data_ptr()));
  }
  double sum_of_squares(const at::Tensor& values) override {
    const at::Tensor sums = scratch_.get("sums of squares", {tk::kPartialRows + 1}, at::kDouble);
    auto* partial = sums.data_ptr<double>();
    must(kernels_->sum_of_squares(values.data_ptr<float>(), values.numel(), partial + 1, partial));
    return sums.narrow(0, 0, 1).item<double>();
  }

 private:
  std::unique_ptr<tk::FusedKernels> kernels_;
  at::Device place_;
  Scratch scratch_;
};

}  // namespace

std::unique_ptr<DraftOps> make_fused_draft_ops(std::unique_ptr<tk::FusedKernels> kernels, at::Device place) {
  return std::make_unique<FusedDraftOps>(std::move(kernels), place);
}

Result<std::unique_ptr<DraftOps>> make_cuda_draft_ops(at::Device place) {
  LEVADA_ASSIGN_OR_RETURN(void* symbol, device::cuda_module_symbol(tk::kMakeFusedKernels));
  std::unique_ptr<tk::FusedKernels> kernels;
  reinterpret_cast<tk::MakeFusedKernels*>(symbol)(&kernels);
  return make_fused_draft_ops(std::move(kernels), place);
}

}  // namespace levada::nn
