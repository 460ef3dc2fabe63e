#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trainkernels/fused.h"
#define LEVADA_ROWS reference
#include "trainkernels/row_values.h"

namespace levada::trainkernels {
namespace {

using reference::load;
using reference::store;

// Calls body with a null pointer of the element's type.
template <class Body>
Status by_type(Element type, Body body) {
  if (type == Element::kBf16) {
    body(static_cast<Bf16*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
  return {};
}
template <class T>
const T* in(const void* memory, T*) {
  return static_cast<const T*>(memory);
}
template <class T>
T* out(void* memory, T*) {
  return static_cast<T*>(memory);
}
template <class T>
const Rows<T>& rows_of(T*) {
  return rows<T>();
}

template <class T>
float dot(const T* a, const T* b, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(load(a[i])) * load(b[i]);
  return static_cast<float>(sum);
}

bool sees(const Attention& a, int set, std::int64_t row, std::int64_t key) {
  const std::int64_t own = row / a.block * a.block;
  const std::int64_t begin = set == 0 ? a.key_begin[row] : own;
  const std::int64_t end = set == 0 ? a.key_end[row] : own + a.own_end[row];
  return key >= begin && key < end;
}

// One query head of one row, and what it needs of a key.
template <class T>
struct Query {
  const Attention& a;
  std::int64_t row, head;
  std::int64_t kv() const { return head / (a.heads / a.kv_heads) * a.head_dim; }
  const T* q() const { return static_cast<const T*>(a.q) + row * a.q_stride + head * a.head_dim; }
  const T* dout() const { return static_cast<const T*>(a.dout) + row * a.dout_stride + head * a.head_dim; }
  const T* k(int set, std::int64_t key) const {
    return static_cast<const T*>(a.keys[set].k) + key * a.keys[set].k_stride + kv();
  }
  const T* v(int set, std::int64_t key) const {
    return static_cast<const T*>(a.keys[set].v) + key * a.keys[set].v_stride + kv();
  }
  float score(int set, std::int64_t key) const { return a.scale * dot(q(), k(set, key), a.head_dim); }
  // Backward: the probability, and the gradient of q . k.
  std::pair<float, float> gradient(int set, std::int64_t key) const {
    const std::int64_t at = row * a.heads + head;
    const float p = std::exp(score(set, key) - a.lse[at]);
    return {p, p * (dot(dout(), v(set, key), a.head_dim) - a.delta[at]) * a.scale};
  }
};

// Calls body(set, key) for every key the row sees, as far as the tile says so.
template <class Body>
void each_key(const Attention& a, const QueryTile& tile, std::int64_t row, Body body) {
  for (int set = 0; set < 2; ++set) {
    for (std::int64_t key = tile.key_begin[set]; key < tile.key_end[set]; ++key) {
      if (sees(a, set, row, key)) body(set, key);
    }
  }
}

template <class Body>
void each_query(const Attention& a, Body body) {
  for (std::int64_t t = 0; t < a.query_tile_count; ++t) {
    const QueryTile& tile = a.query_tiles[t];
    for (std::int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
      for (std::int64_t head = 0; head < a.heads; ++head) body(tile, row, head);
    }
  }
}

template <class T>
void attend(const Attention& a, T*) {
  std::vector<double> sum(static_cast<std::size_t>(a.head_dim));
  each_query(a, [&](const QueryTile& tile, std::int64_t row, std::int64_t head) {
    const Query<T> query{a, row, head};
    float top = -std::numeric_limits<float>::infinity();
    each_key(a, tile, row, [&](int set, std::int64_t key) { top = std::max(top, query.score(set, key)); });
    double total = 0;
    std::fill(sum.begin(), sum.end(), 0.0);
    each_key(a, tile, row, [&](int set, std::int64_t key) {
      const double p = std::exp(static_cast<double>(query.score(set, key)) - top);
      total += p;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += p * load(query.v(set, key)[i]);
    });
    T* to = static_cast<T*>(a.out) + row * a.out_stride + head * a.head_dim;
    for (std::size_t i = 0; i < sum.size(); ++i) store(to[i], static_cast<float>(total > 0 ? sum[i] / total : 0));
    a.lse[row * a.heads + head] = static_cast<float>(top + std::log(total));
  });
}

template <class T>
void attend_backward_queries(const Attention& a) {
  std::vector<double> sum(static_cast<std::size_t>(a.head_dim));
  each_query(a, [&](const QueryTile& tile, std::int64_t row, std::int64_t head) {
    const Query<T> query{a, row, head};
    const T* answer = static_cast<const T*>(a.out) + row * a.out_stride + head * a.head_dim;
    a.delta[row * a.heads + head] = dot(query.dout(), answer, a.head_dim);
    std::fill(sum.begin(), sum.end(), 0.0);
    each_key(a, tile, row, [&](int set, std::int64_t key) {
      const float ds = query.gradient(set, key).second;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(ds) * load(query.k(set, key)[i]);
    });
    T* to = static_cast<T*>(a.dq) + row * a.dq_stride + head * a.head_dim;
    for (std::size_t i = 0; i < sum.size(); ++i) store(to[i], static_cast<float>(sum[i]));
  });
}

template <class T>
void attend_backward_key(const Attention& a, const KeyTile& tile, std::int64_t key, std::int64_t kv_head) {
  const auto width = static_cast<std::size_t>(a.head_dim);
  std::vector<double> dk(width), dv(width);
  const std::int64_t per_group = a.heads / a.kv_heads;
  for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    if (!sees(a, tile.set, row, key)) continue;
    for (std::int64_t head = kv_head * per_group; head < (kv_head + 1) * per_group; ++head) {
      const Query<T> query{a, row, head};
      const auto [p, ds] = query.gradient(tile.set, key);
      for (std::size_t i = 0; i < width; ++i) {
        dk[i] += static_cast<double>(ds) * load(query.q()[i]);
        dv[i] += static_cast<double>(p) * load(query.dout()[i]);
      }
    }
  }
  const Keys& keys = a.keys[tile.set];
  T* to_k = static_cast<T*>(keys.dk) + key * keys.dk_stride + kv_head * a.head_dim;
  T* to_v = static_cast<T*>(keys.dv) + key * keys.dv_stride + kv_head * a.head_dim;
  for (std::size_t i = 0; i < width; ++i) {
    store(to_k[i], static_cast<float>(dk[i]));
    store(to_v[i], static_cast<float>(dv[i]));
  }
}

template <class T>
void attend_backward(const Attention& a, T*) {
  attend_backward_queries<T>(a);
  for (std::int64_t t = 0; t < a.key_tile_count; ++t) {
    const KeyTile& tile = a.key_tiles[t];
    for (std::int64_t key = tile.first_key; key < tile.first_key + tile.keys; ++key) {
      for (std::int64_t head = 0; head < a.kv_heads; ++head) attend_backward_key<T>(a, tile, key, head);
    }
  }
}

// The row kernels write heads in groups of float32: with one group that is row-major.
Heads one_group(Heads heads) {
  heads.per_group = heads.heads;
  return heads;
}

class ReferenceKernels final : public FusedKernels {
 public:
  Status rms(Element type, const Norm& norm, const void* x, const void* w, void* y) override {
    return by_type(type, [&](auto* t) { rows_of(t).rms(norm, in(x, t), in(w, t), out(y, t)); });
  }
  Status rms_backward(Element type, const Norm& norm, const void* x, const void* w, const void* dy, bool accumulate,
                      void* dx, float* dw, float*) override {
    return by_type(type, [&](auto* t) {
      rows_of(t).rms_backward(norm, in(x, t), in(w, t), in(dy, t), accumulate, out(dx, t), dw);
    });
  }
  Status norm_rope(Element type, const Heads& heads, const void* x, const void* w, void* to,
                   std::int64_t stride) override {
    const std::int64_t width = heads.heads * heads.head_dim;
    std::vector<float> wide(static_cast<std::size_t>(heads.rows * width));
    return by_type(type, [&](auto* t) {
      rows_of(t).norm_rope(one_group(heads), in(x, t), in(w, t), wide.data());
      for (std::int64_t i = 0; i < heads.rows * width; ++i) {
        store(out(to, t)[i / width * stride + i % width], wide[static_cast<std::size_t>(i)]);
      }
    });
  }
  Status norm_rope_backward(Element type, const Heads& heads, const void* x, const void* w, const void* dout,
                            std::int64_t stride, void* dx, float* dw, float*) override {
    const std::int64_t width = heads.heads * heads.head_dim;
    std::vector<float> wide(static_cast<std::size_t>(heads.rows * width));
    return by_type(type, [&](auto* t) {
      for (std::int64_t i = 0; i < heads.rows * width; ++i) {
        wide[static_cast<std::size_t>(i)] = load(in(dout, t)[i / width * stride + i % width]);
      }
      rows_of(t).norm_rope_backward(one_group(heads), in(x, t), in(w, t), wide.data(), out(dx, t), dw);
    });
  }
  Status silu_mul(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, void* to) override {
    return by_type(type, [&](auto* t) { rows_of(t).silu_mul(rows, width, in(gate_up, t), out(to, t)); });
  }
  Status silu_mul_backward(Element type, std::int64_t rows, std::int64_t width, const void* gate_up, const void* dout,
                           void* dgate_up) override {
    return by_type(type, [&](auto* t) {
      rows_of(t).silu_mul_backward(rows, width, in(gate_up, t), in(dout, t), out(dgate_up, t));
    });
  }
  Status attention(Element type, const Attention& a) override {
    return by_type(type, [&](auto* t) { attend(a, t); });
  }
  Status attention_backward(Element type, const Attention& a) override {
    return by_type(type, [&](auto* t) { attend_backward(a, t); });
  }
  Status cross_entropy(Element type, std::int64_t rows, std::int64_t width, const void* logits,
                       const std::int64_t* labels, float* nll, float* norm, std::int64_t* argmax) override {
    return by_type(type,
                   [&](auto* t) { rows_of(t).cross_entropy(rows, width, in(logits, t), labels, nll, norm, argmax); });
  }
  Status cross_entropy_backward(Element type, std::int64_t rows, std::int64_t width, void* logits,
                                const std::int64_t* labels, const float* norm, const float* coefficient) override {
    return by_type(type, [&](auto* t) {
      rows_of(t).cross_entropy_backward(rows, width, out(logits, t), labels, norm, coefficient);
    });
  }
  Status adamw(Element type, const Adam& adam, std::int64_t count, const float* grad, float* master, float* first,
               float* second, void* weights) override {
    return by_type(type, [&](auto* t) { rows_of(t).adamw(adam, count, grad, master, first, second, out(weights, t)); });
  }
  Status sum_of_squares(const float* values, std::int64_t count, double*, double* result) override {
    *result = trainkernels::sum_of_squares(values, count);
    return {};
  }
};

}  // namespace

std::unique_ptr<FusedKernels> make_reference_kernels() { return std::make_unique<ReferenceKernels>(); }

}  // namespace levada::trainkernels
