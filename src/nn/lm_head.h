// What: the end of a forward pass: final norm and output projection of the rows that need logits.
// Owner: the model.
// Thread: the worker's.
// Invariant: logits are float32 in host memory whatever the backend; the memory is reused by the next call.
#pragma once

#include "nn/backend.h"

namespace levada::nn {

class LmHead {
 public:
  // `rough`: its logits are for guesses, see Backend::linear_rough().
  LmHead(at::Tensor norm, float eps, Projection output, bool rough = false);
  // `hidden` after the final norm, valid until the next call of either method.
  at::Tensor normed(Backend& backend, const at::Tensor& hidden);
  // [rows.size(), vocabulary], valid until the next call.
  at::Tensor logits(Backend& backend, const at::Tensor& hidden, std::span<const std::int32_t> rows);

 private:
  at::Tensor norm_;
  float eps_;
  Projection output_;
  bool rough_;
  at::Tensor gathered_, normed_, logits_, host_;
};

}  // namespace levada::nn
