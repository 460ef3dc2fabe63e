// What: TensorView, an untyped window on someone else's memory: pointer, dtype, shape, strides, place.
// Owner: never owns; the memory must outlive every use, asynchronous ones included.
// Thread: value type.
// Invariant: strides are in elements; the last dimension is contiguous unless a kernel's contract says otherwise.
// Kernels check rank, dtype and shape at their entry and abort with the argument's name (programmer error).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "base/dtype.h"

namespace levada::device {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct TensorView {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  DeviceKind place = DeviceKind::kCpu;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};

  // Contiguous.
  static TensorView of(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                       DeviceKind place = DeviceKind::kCpu) {
    LEVADA_CHECK(shape.size() <= kMaxRank, "at most four dimensions");
    TensorView view{data, dtype, place, static_cast<int>(shape.size())};
    int i = 0;
    for (std::int64_t extent : shape) view.shape[static_cast<std::size_t>(i++)] = extent;
    std::int64_t stride = 1;
    for (int d = view.rank - 1; d >= 0; --d) {
      view.strides[static_cast<std::size_t>(d)] = stride;
      stride *= view.shape[static_cast<std::size_t>(d)];
    }
    return view;
  }

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (int d = 0; d < rank; ++d) count *= shape[static_cast<std::size_t>(d)];
    return count;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace levada::device
