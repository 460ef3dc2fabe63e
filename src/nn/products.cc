#include "nn/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace levada::nn {

void multiply_wide(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Tensor& plus) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  at::Tensor target = out;
  target.copy_(plus.defined() ? at::addmm(plus.to(at::kDouble), x, y) : at::mm(x, y));
}

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Tensor& plus) {
  at::Tensor target = out;
  if (out.is_cuda() && out.scalar_type() == at::kFloat) {
    multiply_wide(a, b, out, plus);
  } else if (plus.defined()) {
    at::addmm_out(target, plus, a, b);
  } else {
    at::mm_out(target, a, b);
  }
}

void add_weight_gradient(Scratch& scratch, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& dw) {
  if (dy.scalar_type() == at::kFloat) {
    multiply_wide(dy.t(), x, dw, dw);
    return;
  }
  const at::Tensor narrow = scratch.get("weight gradient", dw.sizes(), dy.scalar_type());
  multiply(dy.t(), x, narrow);
  dw.add_(narrow);
}

}  // namespace levada::nn
