#include "nn/lm_head.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace levada::nn {
namespace {

// The first `rows` rows of `memory`, which is replaced when it is too small.
at::Tensor first_rows(at::Tensor& memory, std::int64_t rows, std::int64_t width, at::TensorOptions options) {
  if (!memory.defined() || memory.size(0) < rows) {
    memory = at::Tensor();
    memory = at::empty({rows, width}, options);
  }
  return memory.narrow(0, 0, rows);
}

}  // namespace

LmHead::LmHead(at::Tensor norm, float eps, Projection output, bool rough)
    : norm_(std::move(norm)), eps_(eps), output_(std::move(output)), rough_(rough) {}

at::Tensor LmHead::normed(Backend& backend, const at::Tensor& hidden) {
  const at::Tensor normed = first_rows(normed_, hidden.size(0), hidden.size(1), hidden.options());
  backend.rms_norm(hidden, norm_, eps_, normed);
  return normed;
}

at::Tensor LmHead::logits(Backend& backend, const at::Tensor& hidden, std::span<const std::int32_t> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto options = at::TensorOptions().dtype(backend.activation_type()).device(backend.place());
  const at::Tensor gathered = first_rows(gathered_, count, hidden.size(1), options);
  const at::Tensor normed = first_rows(normed_, count, hidden.size(1), options);
  const at::Tensor logits = first_rows(logits_, count, output_.out_features(), options);
  backend.gather_rows(hidden, rows, gathered);
  backend.rms_norm(gathered, norm_, eps_, normed);
  if (rough_) {
    backend.linear_rough(normed, output_, logits, false);
  } else {
    backend.linear(normed, output_, logits, false);
  }
  if (backend.place().is_cpu() && backend.activation_type() == at::kFloat) return logits;
  const at::Tensor host = first_rows(host_, count, output_.out_features(), at::TensorOptions().dtype(at::kFloat));
  host.copy_(logits.to(at::kFloat));
  return host;
}

}  // namespace levada::nn
