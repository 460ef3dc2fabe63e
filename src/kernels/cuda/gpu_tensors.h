// What: tensors on the GPU with seeded contents and guard zones, for the tests of this room's CUDA kernels.
// Owner: a GpuTensor owns its device memory; views must not outlive it.
// Thread: one.
// Invariant: floats() are the numbers as the type holds them; guards_hold() says that nothing outside the rows was
// written: 4 KiB before and after, and the gaps between rows. Test code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

using device::TensorView;

#define LEVADA_CUDA_OK(expr) \
  ASSERT_EQ(static_cast<int>(expr), static_cast<int>(cudaSuccess)) << cudaGetErrorString(expr)

inline float number_at(const std::uint8_t* at, DType dtype) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return static_cast<float>(value);
  };
  switch (dtype) {
    case DType::kBF16: return as(__nv_bfloat16{});
    case DType::kF16: return as(__half{});
    case DType::kF8E4M3: return as(__nv_fp8_e4m3{});
    case DType::kI32: return as(std::int32_t{});
    default: return as(float{});
  }
}

inline void set_number(std::uint8_t* at, DType dtype, float x) {
  const auto as = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case DType::kBF16: return as(__nv_bfloat16(x));
    case DType::kF16: return as(__half(x));
    case DType::kF8E4M3: return as(__nv_fp8_e4m3(x));
    case DType::kI32: return as(static_cast<std::int32_t>(x));
    default: return as(x);
  }
}

class GpuTensor {
 public:
  static constexpr std::size_t kGuardBytes = 4096;
  static constexpr std::uint8_t kGuard = 0xa5;

  // Contents: `value(i)` for the i-th number in row-major order. The first dimension's stride is widened by `gap`.
  template <class F>
  GpuTensor(DType dtype, const std::vector<std::int64_t>& shape, std::int64_t gap, F&& value) {
    view_.dtype = dtype;
    view_.place = device::DeviceKind::kCuda;
    view_.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      view_.shape[d] = shape[d];
      view_.strides[d] = stride;
      stride *= shape[d];
      if (d == 1) stride += gap;
    }
    bytes_.assign(2 * kGuardBytes + static_cast<std::size_t>(stride) * bytes_of(dtype), kGuard);
    for (std::int64_t i = 0; i < view_.elements(); ++i) set_number(bytes_.data() + offset(i), dtype, value(i));
    EXPECT_EQ(cudaMalloc(&memory_, bytes_.size()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(memory_, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), cudaSuccess);
    view_.data = static_cast<std::uint8_t*>(memory_) + kGuardBytes;
  }
  GpuTensor(const GpuTensor&) = delete;
  GpuTensor& operator=(const GpuTensor&) = delete;
  ~GpuTensor() { cudaFree(memory_); }

  // Normally distributed around 0, or around `mean`.
  static GpuTensor random(std::uint64_t seed, DType dtype, const std::vector<std::int64_t>& shape, std::int64_t gap = 0,
                          float deviation = 1, float mean = 0) {
    std::mt19937_64 bits(seed);
    std::normal_distribution<float> normal(mean, deviation);
    return GpuTensor(dtype, shape, gap, [&](std::int64_t) { return normal(bits); });
  }
  // NaN everywhere, so that what a kernel leaves out shows.
  static GpuTensor unwritten(DType dtype, const std::vector<std::int64_t>& shape, std::int64_t gap = 0) {
    return GpuTensor(dtype, shape, gap, [](std::int64_t) { return std::nanf(""); });
  }
  static GpuTensor ints(const std::vector<std::int32_t>& values) {
    return GpuTensor(DType::kI32, {static_cast<std::int64_t>(values.size())}, 0,
                     [&](std::int64_t i) { return static_cast<float>(values[static_cast<std::size_t>(i)]); });
  }

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }

  // What the GPU holds now, row by row; waits for the device.
  std::vector<float> floats() {
    fetch();
    std::vector<float> out(static_cast<std::size_t>(view_.elements()));
    for (std::int64_t i = 0; i < view_.elements(); ++i) {
      out[static_cast<std::size_t>(i)] = number_at(bytes_.data() + offset(i), view_.dtype);
    }
    return out;
  }
  bool guards_hold() {
    fetch();
    std::vector<bool> own(bytes_.size(), false);
    for (std::int64_t i = 0; i < view_.elements(); ++i) {
      for (std::size_t b = 0; b < bytes_of(view_.dtype); ++b) own[offset(i) + b] = true;
    }
    for (std::size_t b = 0; b < bytes_.size(); ++b) {
      if (!own[b] && bytes_[b] != kGuard) return false;
    }
    return true;
  }

 private:
  std::size_t offset(std::int64_t i) const {
    std::int64_t at = 0;
    for (int d = view_.rank - 1; d >= 0; --d) {
      const auto u = static_cast<std::size_t>(d);
      at += i % view_.shape[u] * view_.strides[u];
      i /= view_.shape[u];
    }
    return kGuardBytes + static_cast<std::size_t>(at) * bytes_of(view_.dtype);
  }
  void fetch() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(bytes_.data(), memory_, bytes_.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  }
  TensorView view_;
  void* memory_ = nullptr;
  std::vector<std::uint8_t> bytes_;
};

// A contiguous float32 view of `values` on the CPU, for the twins.
inline TensorView host_view(std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
  return TensorView::of(values.data(), DType::kF32, shape);
}

// The rounding of a result of this type, relative.
inline double rounding(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return 8e-3;
    case DType::kF16: return 1e-3;
    case DType::kF8E4M3: return 6.5e-2;
    default: return 2e-5;
  }
}

// |got - want| <= tolerance * (|want| + scale); NaN never passes.
inline void expect_close(const std::vector<float>& got, const std::vector<float>& want, double tolerance, double scale,
                         const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (std::abs(want[i]) + scale)) << what << " element " << i;
  }
}

inline void expect_ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }

}  // namespace levada::kernels::cuda
