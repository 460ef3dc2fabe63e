#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <limits>

#include "nn/draft_ops.h"

namespace levada::nn {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat); }

// 1 / rms over the last dimension, float32.
at::Tensor inverse_rms(const at::Tensor& x, float eps) { return x.square().mean(-1, true).add_(eps).rsqrt_(); }

// dx of y = w * x * inverse, and x * inverse * dy summed over rows into dw.
at::Tensor through_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy, float eps,
                        const at::Tensor& dw) {
  const at::Tensor inverse = inverse_rms(x, eps), normed = x.mul(inverse);
  dw.add_(dy.mul(normed).flatten(0, -2).sum(0));
  const at::Tensor dnormed = dy.mul(wide(w));
  return dnormed.sub(normed.mul(dnormed.mul(normed).mean(-1, true))).mul_(inverse);
}

// [rows, heads, d] <-> [groups, rows, per group, d]
at::Tensor head_major(const at::Tensor& x, std::int64_t groups) {
  return x.view({x.size(0), groups, x.size(1) / groups, x.size(2)}).transpose(0, 1);
}
at::Tensor row_major(const at::Tensor& x) { return x.transpose(0, 1).flatten(1, 2); }

// Half-split rotation of [rows, heads, d], or the other way round.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos_sin, bool back) {
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor cos = cos_sin.narrow(1, 0, half).unsqueeze(1), sin = cos_sin.narrow(1, half, half).unsqueeze(1);
  const at::Tensor turn = back ? sin.neg() : sin;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  return at::cat({a.mul(cos).sub_(b.mul(turn)), b.mul(cos).add_(a.mul(turn))}, 2);
}

class TorchDraftOps final : public TileOps {
 public:
  explicit TorchDraftOps(at::Device place) : place_(place) {}
  at::Device place() const override { return place_; }
  at::ScalarType score_type() const override { return at::kFloat; }

  void rms(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& y) override {
    const at::Tensor f = wide(x);
    y.copy_(f.mul(inverse_rms(f, eps)).to(x.scalar_type()).mul(w));
  }
  void rms_backward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy, float eps, bool accumulate,
                    const at::Tensor& dx, const at::Tensor& dw) override {
    const at::Tensor through = through_norm(wide(x), w, wide(dy), eps, dw);
    if (accumulate) {
      dx.add_(through);
    } else {
      dx.copy_(through);
    }
  }
  void norm_rope(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& cos_sin,
                 const at::Tensor& out) override {
    const at::Tensor f = wide(x), turned = rotated(f.mul(inverse_rms(f, eps)).mul_(wide(w)), cos_sin, false);
    out.copy_(head_major(turned, out.size(0)));
  }
  void norm_rope_backward(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& cos_sin,
                          const at::Tensor& dout, const at::Tensor& dx, const at::Tensor& dw) override {
    const at::Tensor turned = rotated(row_major(dout), cos_sin, true);
    dx.copy_(through_norm(wide(x), w, turned, eps, dw));
  }
  void rope(const at::Tensor& x, const at::Tensor& cos_sin, const at::Tensor& out) override {
    out.copy_(head_major(rotated(wide(x), cos_sin, false), out.size(0)));
  }
  void rope_backward(const at::Tensor& cos_sin, const at::Tensor& dout, const at::Tensor& dx) override {
    dx.copy_(rotated(row_major(dout), cos_sin, true));
  }
  void to_heads(const at::Tensor& x, const at::Tensor& out) override { out.copy_(head_major(x, out.size(0))); }
  void from_heads(const at::Tensor& in, const at::Tensor& out) override { out.copy_(row_major(in)); }
  void attention_grad_in(const at::Tensor& dout, const at::Tensor& out, const at::Tensor& dout_heads,
                         const at::Tensor& delta) override {
    dout_heads.copy_(head_major(dout, dout_heads.size(0)));
    delta.copy_(head_major(wide(out).mul_(wide(dout)), dout_heads.size(0)).sum(-1));
  }
  void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) override {
    const std::int64_t width = out.size(1);
    const at::Tensor gate = wide(gate_up.narrow(1, 0, width));
    out.copy_(gate.mul(at::sigmoid(gate)).to(out.scalar_type()).mul(gate_up.narrow(1, width, width)));
  }
  void silu_mul_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up) override {
    const std::int64_t width = dout.size(1);
    const at::Tensor gate = wide(gate_up.narrow(1, 0, width)), up = wide(gate_up.narrow(1, width, width));
    const at::Tensor grad = wide(dout), sigmoid = at::sigmoid(gate);
    dgate_up.narrow(1, width, width).copy_(grad.mul(gate).mul_(sigmoid));
    const at::Tensor slope = gate.mul(sigmoid.neg().add_(1)).add_(1).mul_(sigmoid);
    dgate_up.narrow(1, 0, width).copy_(grad.mul(up).mul_(slope));
  }

  void softmax(const ScoreTile& tile, const at::Tensor& context, const at::Tensor& own,
               const at::Tensor& lse) override {
    hide(tile, context, own, -std::numeric_limits<float>::infinity());
    const at::Tensor all = at::cat({context, own}, 3).mul_(tile.scale);
    lse.copy_(at::logsumexp(all, {3}));
    const at::Tensor p = all.sub_(lse.unsqueeze(3)).exp_();
    context.copy_(p.narrow(3, 0, context.size(3)));
    own.copy_(p.narrow(3, context.size(3), own.size(3)));
  }
  void softmax_backward(const ScoreTile& tile, const at::Tensor& lse, const at::Tensor& delta,
                        const at::Tensor& context, const at::Tensor& dcontext, const at::Tensor& own,
                        const at::Tensor& down) override {
    hide(tile, context, own, -std::numeric_limits<float>::infinity());
    for (auto [scores, gradient] : {std::pair(context, dcontext), std::pair(own, down)}) {
      scores.mul_(tile.scale).sub_(lse.unsqueeze(3)).exp_();
      gradient.sub_(delta.unsqueeze(3)).mul_(scores).mul_(tile.scale);
    }
  }
  void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& nll, const at::Tensor& norm,
                     const at::Tensor& argmax) override {
    const at::Tensor f = wide(logits), top = f.amax({1}), total = f.sub(top.unsqueeze(1)).exp_().sum(1);
    norm.select(1, 0).copy_(top);
    norm.select(1, 1).copy_(total.reciprocal());
    nll.copy_(total.log().add_(top.sub(f.gather(1, labels.unsqueeze(1)).squeeze(1))));
    argmax.copy_(logits.argmax(1));
  }
  void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& norm,
                              const at::Tensor& coefficient) override {
    const at::Tensor scale = coefficient.mul(norm.select(1, 1)).unsqueeze(1);
    const at::Tensor p = wide(logits).sub(norm.narrow(1, 0, 1)).exp_().mul_(scale);
    p.scatter_add_(1, labels.unsqueeze(1), coefficient.neg().unsqueeze(1));
    logits.copy_(p);
  }
  void distill(const Lesson& lesson, const at::Tensor& logits, const at::Tensor& loss, const at::Tensor& overlap,
               const at::Tensor& argmax) override {
    const at::Tensor of = lesson.teacher_of, norm = lesson.teacher_norm.index_select(0, of);
    const at::Tensor p =
        wide(lesson.teacher.index_select(0, of)).sub_(norm.narrow(1, 0, 1)).exp_().mul_(norm.narrow(1, 1, 1));
    const at::Tensor f = wide(logits), log_q = f.sub(at::logsumexp(f, {1}, true)), q = log_q.exp();
    argmax.copy_(logits.argmax(1));
    loss.copy_(p.mul(log_q).sum(1).neg_());
    overlap.copy_(q.minimum(p.mul(lesson.mass.index_select(0, of).unsqueeze(1))).sum(1));
    logits.copy_(q.sub_(p).mul_(lesson.coefficient.unsqueeze(1)));
  }
  void adamw(const AdamStep& step, const at::Tensor& grad, const at::Tensor& master, const at::Tensor& first,
             const at::Tensor& second, const at::Tensor& weights) override {
    const double correction1 = 1 - std::pow(0.9, static_cast<double>(step.step));
    const double correction2 = 1 - std::pow(0.999, static_cast<double>(step.step));
    const at::Tensor g = grad.mul(step.grad_scale);
    first.mul_(0.9).add_(g, 0.1);
    second.mul_(0.999).addcmul_(g, g, 0.001);
    const at::Tensor root = second.sqrt().mul_(1 / std::sqrt(correction2)).add_(1e-8);
    master.mul_(1 - step.learning_rate * step.weight_decay);
    master.addcdiv_(first, root, -step.learning_rate / correction1);
    weights.copy_(master);
  }
  double sum_of_squares(const at::Tensor& values) override { return values.square().sum(at::kDouble).item<double>(); }

 private:
  // Hidden scores get `value`.
  static void hide(const ScoreTile& tile, const at::Tensor& context, const at::Tensor& own, float value) {
    const auto options = tile.key_begin.options();
    const std::int64_t rows = tile.key_begin.size(0), keys = context.size(3), block = own.size(3);
    const at::Tensor key = at::arange(tile.first_key, tile.first_key + keys, options).unsqueeze(0);
    const at::Tensor outside = key.lt(tile.key_begin.unsqueeze(1)).logical_or_(key.ge(tile.key_end.unsqueeze(1)));
    context.masked_fill_(outside.view({1, rows, 1, keys}), value);
    const at::Tensor later = at::arange(block, options).unsqueeze(0).ge(tile.own_end.unsqueeze(1));
    own.masked_fill_(later.view({1, rows, 1, block}), value);
  }

  at::Device place_;
};

}  // namespace

std::unique_ptr<DraftOps> make_torch_draft_ops(at::Device place) { return std::make_unique<TorchDraftOps>(place); }

}  // namespace levada::nn
