#include <cmath>
#include <type_traits>

#include "nn/draft_ops.h"
#include "trainkernels/rows.h"

namespace levada::nn {
namespace {

namespace tk = trainkernels;

// Calls body with a null pointer of the tensor's element type: float or Bf16.
template <class Body>
void by_type(const at::Tensor& tensor, Body body) {
  if (tensor.scalar_type() == at::kBFloat16) return body(static_cast<tk::Bf16*>(nullptr));
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, "draft weights are float32 or bfloat16");
  body(static_cast<float*>(nullptr));
}

template <class T>
T* data(const at::Tensor& tensor, T*) {
  return static_cast<T*>(tensor.data_ptr());
}
float* f32(const at::Tensor& tensor) { return tensor.data_ptr<float>(); }
std::int64_t* i64(const at::Tensor& tensor) { return tensor.data_ptr<std::int64_t>(); }

tk::Heads heads_of(const at::Tensor& x, std::int64_t per_group) {
  TORCH_CHECK(x.dim() == 3 && x.stride(2) == 1 && x.stride(1) == x.size(2), "rows of heads lie one after the other");
  tk::Heads heads;
  heads.rows = x.size(0);
  heads.stride = x.stride(0);
  heads.heads = x.size(1);
  heads.per_group = per_group;
  heads.head_dim = x.size(2);
  return heads;
}

tk::Tile tile_of(const ScoreTile& tile, const at::Tensor& context, const at::Tensor& own) {
  tk::Tile t;
  t.groups = own.size(0);
  t.rows = own.size(1);
  t.per_group = own.size(2);
  t.block = own.size(3);
  t.first_key = tile.first_key;
  t.keys = context.size(3);
  t.key_begin = i64(tile.key_begin);
  t.key_end = i64(tile.key_end);
  t.own_end = i64(tile.own_end);
  t.scale = tile.scale;
  return t;
}

class CpuDraftOps final : public TileOps {
 public:
  at::Device place() const override { return at::kCPU; }
  at::ScalarType score_type() const override { return at::kFloat; }

  void rms(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& y) override {
    by_type(x, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().rms({x.size(0), x.size(1), eps}, data(x, t), data(w, t),
                                                         data(y, t));
    });
  }
  void rms_backward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy, float eps, bool accumulate,
                    const at::Tensor& dx, const at::Tensor& dw) override {
    by_type(x, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().rms_backward({x.size(0), x.size(1), eps}, data(x, t), data(w, t),
                                                                  data(dy, t), accumulate, data(dx, t), f32(dw));
    });
  }
  void norm_rope(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& cos_sin,
                 const at::Tensor& out) override {
    tk::Heads heads = heads_of(x, out.size(2));
    heads.eps = eps;
    heads.cos_sin = f32(cos_sin);
    by_type(x, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().norm_rope(heads, data(x, t), data(w, t), f32(out));
    });
  }
  void norm_rope_backward(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& cos_sin,
                          const at::Tensor& dout, const at::Tensor& dx, const at::Tensor& dw) override {
    TORCH_CHECK(dx.strides() == x.strides(), "a gradient lies as its input does");
    tk::Heads heads = heads_of(x, dout.size(2));
    heads.eps = eps;
    heads.cos_sin = f32(cos_sin);
    by_type(x, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().norm_rope_backward(heads, data(x, t), data(w, t), f32(dout),
                                                                        data(dx, t), f32(dw));
    });
  }
  void rope(const at::Tensor& x, const at::Tensor& cos_sin, const at::Tensor& out) override {
    tk::Heads heads = heads_of(x, out.size(2));
    heads.cos_sin = f32(cos_sin);
    by_type(x, [&](auto* t) { tk::rows<std::remove_pointer_t<decltype(t)>>().rope(heads, data(x, t), f32(out)); });
  }
  void rope_backward(const at::Tensor& cos_sin, const at::Tensor& dout, const at::Tensor& dx) override {
    tk::Heads heads = heads_of(dx, dout.size(2));
    heads.cos_sin = f32(cos_sin);
    by_type(dx, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().rope_backward(heads, f32(dout), data(dx, t));
    });
  }
  void to_heads(const at::Tensor& x, const at::Tensor& out) override {
    by_type(x, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().to_heads(heads_of(x, out.size(2)), data(x, t), f32(out));
    });
  }
  void from_heads(const at::Tensor& in, const at::Tensor& out) override {
    by_type(out, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().from_heads(heads_of(out, in.size(2)), f32(in), data(out, t));
    });
  }
  void attention_grad_in(const at::Tensor& dout, const at::Tensor& out, const at::Tensor& dout_heads,
                         const at::Tensor& delta) override {
    TORCH_CHECK(dout.strides() == out.strides(), "a gradient lies as its output does");
    by_type(out, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().attention_grad_in(heads_of(out, dout_heads.size(2)), data(dout, t),
                                                                       data(out, t), f32(dout_heads), f32(delta));
    });
  }
  void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) override {
    by_type(out, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().silu_mul(out.size(0), out.size(1), data(gate_up, t), data(out, t));
    });
  }
  void silu_mul_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up) override {
    by_type(dout, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().silu_mul_backward(dout.size(0), dout.size(1), data(gate_up, t),
                                                                       data(dout, t), data(dgate_up, t));
    });
  }
  void softmax(const ScoreTile& tile, const at::Tensor& context, const at::Tensor& own,
               const at::Tensor& lse) override {
    tk::softmax_tile(tile_of(tile, context, own), f32(context), f32(own), f32(lse));
  }
  void softmax_backward(const ScoreTile& tile, const at::Tensor& lse, const at::Tensor& delta,
                        const at::Tensor& context, const at::Tensor& dcontext, const at::Tensor& own,
                        const at::Tensor& down) override {
    tk::softmax_tile_backward(tile_of(tile, context, own), f32(lse), f32(delta), f32(context), f32(dcontext), f32(own),
                              f32(down));
  }
  void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& nll, const at::Tensor& norm,
                     const at::Tensor& argmax) override {
    by_type(logits, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().cross_entropy(logits.size(0), logits.size(1), data(logits, t),
                                                                   i64(labels), f32(nll), f32(norm), i64(argmax));
    });
  }
  void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& norm,
                              const at::Tensor& coefficient) override {
    by_type(logits, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().cross_entropy_backward(
          logits.size(0), logits.size(1), data(logits, t), i64(labels), f32(norm), f32(coefficient));
    });
  }
  void distill(const Lesson& lesson, const at::Tensor& logits, const at::Tensor& loss, const at::Tensor& overlap,
               const at::Tensor& argmax) override {
    tk::Distillation d;
    d.rows = logits.size(0);
    d.width = logits.size(1);
    d.teacher_of = i64(lesson.teacher_of);
    d.teacher_norm = f32(lesson.teacher_norm);
    d.mass = f32(lesson.mass);
    d.coefficient = f32(lesson.coefficient);
    by_type(logits, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().distill(d, data(logits, t), data(lesson.teacher, t), f32(loss),
                                                             f32(overlap), i64(argmax));
    });
  }
  void adamw(const AdamStep& step, const at::Tensor& grad, const at::Tensor& master, const at::Tensor& first,
             const at::Tensor& second, const at::Tensor& weights) override {
    tk::Adam adam;
    adam.learning_rate = step.learning_rate;
    adam.weight_decay = step.weight_decay;
    adam.grad_scale = static_cast<float>(step.grad_scale);
    adam.correction1 = 1 - std::pow(0.9, static_cast<double>(step.step));
    adam.correction2 = 1 - std::pow(0.999, static_cast<double>(step.step));
    by_type(weights, [&](auto* t) {
      tk::rows<std::remove_pointer_t<decltype(t)>>().adamw(adam, grad.numel(), f32(grad), f32(master), f32(first),
                                                           f32(second), data(weights, t));
    });
  }
  double sum_of_squares(const at::Tensor& values) override { return tk::sum_of_squares(f32(values), values.numel()); }
};

}  // namespace

std::unique_ptr<DraftOps> make_cpu_draft_ops() { return std::make_unique<CpuDraftOps>(); }

}  // namespace levada::nn
