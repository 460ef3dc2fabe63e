// The GPU's kernels against the reference, over random shapes.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <list>

#include "trainkernels/fused_case_test.h"

extern "C" void levada_make_fused_kernels(std::unique_ptr<levada::trainkernels::FusedKernels>* result);

namespace levada::trainkernels {
namespace {

using namespace test;

// Device memory with guard zones behind every array, checked when it goes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    for (const Place& place : places_) {
      std::vector<unsigned char> guard(kGuard);
      cudaMemcpy(guard.data(), place.data + place.bytes, kGuard, cudaMemcpyDeviceToHost);
      EXPECT_EQ(std::count(guard.begin(), guard.end(), 0xa5), static_cast<std::ptrdiff_t>(kGuard));
      cudaFree(place.data);
    }
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    Place place{nullptr, values.size() * sizeof(T)};
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&place.data), place.bytes + kGuard), cudaSuccess);
    cudaMemcpy(place.data, values.data(), place.bytes, cudaMemcpyHostToDevice);
    cudaMemset(place.data + place.bytes, 0xa5, kGuard);
    places_.push_back(place);
    return reinterpret_cast<T*>(place.data);
  }
  template <class T>
  void take(const void* from, std::vector<T>& to) {
    EXPECT_EQ(cudaMemcpy(to.data(), from, to.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  }
  void must(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }

 private:
  static constexpr std::size_t kGuard = 4096;
  struct Place {
    char* data;
    std::size_t bytes;
  };
  std::list<Place> places_;
};

struct HostMemory {
  template <class T>
  T* put(const std::vector<T>& values) {
    auto& place = places.emplace_back(std::max<std::size_t>(1, values.size() * sizeof(T)));
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T), place.begin());
    return reinterpret_cast<T*>(place.data());
  }
  template <class T>
  void take(const void* from, std::vector<T>& to) {
    std::copy_n(static_cast<const T*>(from), to.size(), to.begin());
  }
  void must(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }
  std::list<std::vector<std::byte>> places;
};

std::unique_ptr<FusedKernels> gpu() {
  std::unique_ptr<FusedKernels> kernels;
  levada_make_fused_kernels(&kernels);
  return kernels;
}

// The largest difference over the largest value.
template <class T>
double off(const std::vector<T>& ours, const std::vector<T>& theirs) {
  double most = 0, largest = 1e-3;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = number(ours[i]), b = number(theirs[i]);
    if (!(std::isinf(a) && std::isinf(b))) most = std::isnan(a) ? INFINITY : std::max(most, std::abs(a - b));
    if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
  }
  return most / largest;
}

// Shapes of all kinds: head widths with and without a tensor-core form, windows, blocks that don't divide a tile.
AttentionShape random_shape(std::mt19937& random) {
  auto among = [&](std::initializer_list<std::int64_t> all) { return all.begin()[random() % all.size()]; };
  AttentionShape s;
  s.block = among({1, 4, 7, 8, 16, 70});
  s.kv_heads = among({1, 2, 3});
  s.heads = s.kv_heads * among({1, 3, 4});
  s.head_dim = among({32, 64, 64, 128, 40, 256});
  s.window = among({0, 0, 9});
  s.blocks = among({1, 5, 20});
  s.contexts = {among({0, 1, 63, 64, 200}), among({5, 130})};
  return s;
}

template <class T>
void compare_attention(Element type, double limit) {
  std::mt19937 random(7);
  const auto kernels = gpu(), reference = make_reference_kernels();
  for (unsigned trial = 0; trial < 24; ++trial) {
    const AttentionShape s = random_shape(random);
    const AttentionCase<T> c(s, trial);
    HostMemory host;
    DeviceMemory device;
    const AttentionAnswer<T> expected = attend(*reference, type, c, host), got = attend(*kernels, type, c, device);
    const std::string shape = "block " + std::to_string(s.block) + " x " + std::to_string(s.blocks) + ", heads " +
                              std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " of " +
                              std::to_string(s.head_dim) + ", window " + std::to_string(s.window) + ", context " +
                              std::to_string(s.contexts[0]) + " and " + std::to_string(s.contexts[1]);
    EXPECT_LE(off(got.out, expected.out), limit) << shape;
    EXPECT_LE(off(got.lse, expected.lse), limit) << shape;
    EXPECT_LE(off(got.dq, expected.dq), limit) << shape;
    EXPECT_LE(off(got.own_dk, expected.own_dk), limit) << shape;
    EXPECT_LE(off(got.own_dv, expected.own_dv), limit) << shape;
    EXPECT_LE(off(got.context_dk, expected.context_dk), limit) << shape;
    EXPECT_LE(off(got.context_dv, expected.context_dv), limit) << shape;
  }
}

TEST(CudaAttention, EqualsTheReferenceInFloat32) { compare_attention<float>(Element::kFloat, 1e-5); }
TEST(CudaAttention, EqualsTheReferenceInBfloat16) { compare_attention<Bf16>(Element::kBf16, 2e-2); }

TEST(CudaAttention, GivesTheSameBitsAgain) {
  const AttentionCase<Bf16> c({8, 9, 3, 64, 0, {300, 200}, 40}, 5);
  const auto kernels = gpu();
  DeviceMemory first, second;
  const auto a = attend(*kernels, Element::kBf16, c, first), b = attend(*kernels, Element::kBf16, c, second);
  EXPECT_EQ(off(a.dq, b.dq), 0);
  EXPECT_EQ(off(a.context_dk, b.context_dk), 0);
  EXPECT_EQ(off(a.context_dv, b.context_dv), 0);
}

// One row kernel on both sides: `run` gets kernels and a memory and returns what was computed, as floats.
template <class Run>
void compare_rows(double limit, Run run) {
  HostMemory host;
  DeviceMemory device;
  const std::vector<std::vector<float>> expected = run(*make_reference_kernels(), host), got = run(*gpu(), device);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_LE(off(got[i], expected[i]), limit) << "result " << i;
}

template <class T>
std::vector<float> numbers(const std::vector<T>& values) {
  std::vector<float> out;
  for (const T& value : values) out.push_back(number(value));
  return out;
}

template <class T>
void compare_norms(Element type, double limit, std::int64_t rows, std::int64_t width) {
  compare_rows(limit, [&](FusedKernels& kernels, auto& memory) {
    std::mt19937 random(11);
    std::vector<T> y(static_cast<std::size_t>(rows * width)), dx = random_values<T>(random, rows * width);
    const Norm norm{rows, width, 1e-5f};
    auto *x = memory.put(random_values<T>(random, rows * width)), *w = memory.put(random_values<T>(random, width));
    auto *dy = memory.put(random_values<T>(random, rows * width)), *to = memory.put(y), *back = memory.put(dx);
    std::vector<float> dw = random_values<float>(random, width);
    auto *weight = memory.put(dw),
         *partial = memory.put(std::vector<float>(static_cast<std::size_t>(kPartialRows * width)));
    memory.must(kernels.rms(type, norm, x, w, to));
    memory.must(kernels.rms_backward(type, norm, x, w, dy, true, back, weight, partial));
    memory.take(to, y);
    memory.take(back, dx);
    memory.take(weight, dw);
    return std::vector{numbers(y), numbers(dx), dw};
  });
}

TEST(CudaNorms, EqualTheReference) {
  for (std::int64_t rows : {1, 33, 5000}) {
    for (std::int64_t width : {24, 576, 1000, 4096, 5120}) {
      compare_norms<float>(Element::kFloat, 2e-6, rows, width);
      compare_norms<Bf16>(Element::kBf16, 1e-2, rows, width);
    }
  }
}

template <class T>
void compare_rope(Element type, double limit, std::int64_t heads, std::int64_t head_dim) {
  compare_rows(limit, [&](FusedKernels& kernels, auto& memory) {
    std::mt19937 random(12);
    const std::int64_t rows = 301, stride = (heads + 1) * head_dim, width = heads * head_dim;
    Heads h;
    h.rows = rows;
    h.stride = stride;
    h.heads = heads;
    h.head_dim = head_dim;
    h.eps = 1e-6f;
    h.cos_sin = memory.put(random_values<float>(random, rows * head_dim));
    std::vector<T> turned(static_cast<std::size_t>(rows * width)), dx(static_cast<std::size_t>(rows * stride));
    std::vector<float> dw = random_values<float>(random, head_dim);
    auto *x = memory.put(random_values<T>(random, rows * stride)), *w = memory.put(random_values<T>(random, head_dim));
    auto *dout = memory.put(random_values<T>(random, rows * width)), *to = memory.put(turned), *back = memory.put(dx);
    auto *weight = memory.put(dw),
         *partial = memory.put(std::vector<float>(static_cast<std::size_t>(kPartialRows * head_dim)));
    memory.must(kernels.norm_rope(type, h, x, w, to, width));
    memory.must(kernels.norm_rope_backward(type, h, x, w, dout, width, back, weight, partial));
    memory.take(to, turned);
    memory.take(back, dx);
    memory.take(weight, dw);
    return std::vector{numbers(turned), numbers(dx), dw};
  });
}

TEST(CudaNorms, WithRotationEqualTheReference) {
  for (std::int64_t head_dim : {16, 40, 64, 128, 256}) {
    compare_rope<float>(Element::kFloat, 5e-6, 3, head_dim);
    compare_rope<Bf16>(Element::kBf16, 1e-2, 3, head_dim);
  }
}

template <class T>
void compare_silu(Element type, double limit, std::int64_t width) {
  compare_rows(limit, [&](FusedKernels& kernels, auto& memory) {
    std::mt19937 random(13);
    const std::int64_t rows = 77;
    std::vector<T> y(static_cast<std::size_t>(rows * width)), dx(static_cast<std::size_t>(rows * width * 2));
    auto *x = memory.put(random_values<T>(random, rows * width * 2)),
         *dy = memory.put(random_values<T>(random, rows * width));
    auto *to = memory.put(y), *back = memory.put(dx);
    memory.must(kernels.silu_mul(type, rows, width, x, to));
    memory.must(kernels.silu_mul_backward(type, rows, width, x, dy, back));
    memory.take(to, y);
    memory.take(back, dx);
    return std::vector{numbers(y), numbers(dx)};
  });
}

TEST(CudaSilu, EqualsTheReference) {
  for (std::int64_t width : {13, 1536}) {
    compare_silu<float>(Element::kFloat, 2e-6, width);
    compare_silu<Bf16>(Element::kBf16, 1e-2, width);
  }
}

template <class T>
void compare_loss(Element type, double limit, std::int64_t width) {
  compare_rows(limit, [&](FusedKernels& kernels, auto& memory) {
    std::mt19937 random(14);
    const std::int64_t rows = 37;
    std::vector<T> logits = random_values<T>(random, rows * width, 4);
    std::vector<std::int64_t> labels, argmax(rows);
    for (std::int64_t r = 0; r < rows; ++r) labels.push_back(static_cast<std::int64_t>(random() % width));
    logits[1] = logits[static_cast<std::size_t>(width) - 1] = logits[0];
    assign(logits[0], 50), assign(logits[static_cast<std::size_t>(width) - 1], 50);  // a tie: the first one wins
    std::vector<float> nll(rows), norm(2 * rows);
    std::vector<T> slopes = logits;
    auto *x = memory.put(logits), *again = memory.put(logits);
    auto *l = memory.put(labels), *best = memory.put(argmax);
    auto *n = memory.put(nll), *m = memory.put(norm), *c = memory.put(random_values<float>(random, rows));
    memory.must(kernels.cross_entropy(type, rows, width, x, l, n, m, best));
    memory.must(kernels.cross_entropy_backward(type, rows, width, x, l, m, c));
    memory.take(x, logits);
    memory.take(n, nll);
    const std::vector<float> first = nll;
    memory.must(kernels.cross_entropy_both(type, rows, width, again, l, n, m, best, c));
    memory.take(again, slopes);
    memory.take(n, nll);
    memory.take(m, norm);
    memory.take(best, argmax);
    EXPECT_EQ(argmax[0], 0);
    return std::vector{first,          nll, norm, std::vector<float>(argmax.begin(), argmax.end()), numbers(logits),
                       numbers(slopes)};
  });
}

TEST(CudaLoss, EqualsTheReference) {
  for (std::int64_t width : {3, 500, 49152}) {
    compare_loss<float>(Element::kFloat, 5e-6, width);
    compare_loss<Bf16>(Element::kBf16, 1e-2, width);
  }
}

TEST(CudaOptimizer, EqualsTheReference) {
  for (std::size_t count : {1u, 300u, 100003u}) {
    compare_rows(1e-6, [&](FusedKernels& kernels, auto& memory) {
      std::mt19937 random(15);
      const auto size = static_cast<std::int64_t>(count);
      std::vector<float> master = random_values<float>(random, size), second(count, 0.5f), weights(count);
      const std::vector<float> grad = random_values<float>(random, size);
      std::vector<double> sum(1);
      Adam adam;
      adam.learning_rate = 1e-3;
      adam.weight_decay = 0.1;
      adam.correction1 = 0.1;
      adam.correction2 = 0.001;
      adam.grad_scale = 0.5f;
      auto *g = memory.put(grad), *m = memory.put(master), *first = memory.put(grad), *v = memory.put(second);
      auto* w = memory.put(weights);
      auto *partial = memory.put(std::vector<double>(static_cast<std::size_t>(kPartialRows))),
           *result = memory.put(sum);
      memory.must(kernels.adamw(Element::kFloat, adam, size, g, m, first, v, w));
      memory.must(kernels.sum_of_squares(g, size, partial, result));
      memory.take(m, master);
      memory.take(v, second);
      memory.take(w, weights);
      memory.take(result, sum);
      return std::vector{master, second, weights, std::vector<float>(sum.begin(), sum.end())};
    });
  }
}

}  // namespace
}  // namespace levada::trainkernels
