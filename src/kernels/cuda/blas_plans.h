// What: BlasPlans, products through cuBLASLt and the choice of its algorithm per shape.
// Owner: Linears; owns the library handle and its workspace.
// Thread: one, on one stream at a time.
// Invariant: a shape's algorithm never changes between its first use and the next tune() or load(), so that a captured
// graph and later calls compute the same. multiply() allocates no device memory.
// Format of save(): docs of Linears::save_plans; a header line with library version and GPU, then one plan a line.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

using device::TensorView;

// out (+)= x w^T. x: [R, K], w: [N, K], out: [R, N]; rows of x and out may be strided. f8 x and w come with their scales
// (x_scale: f32 [K/128, R], w_scale: f32 [N/128, K/128 rounded up to 4]).
struct Product {
  TensorView x, w, out;
  bool accumulate = false;
  const float *x_scale = nullptr, *w_scale = nullptr;
};

class BlasPlans {
 public:
  static Result<std::unique_ptr<BlasPlans>> create();
  ~BlasPlans();
  BlasPlans(const BlasPlans&) = delete;
  BlasPlans& operator=(const BlasPlans&) = delete;

  Status multiply(const Product& product, cudaStream_t stream);
  // Measures; `products` share one shape. False when a plan was there.
  Result<bool> tune(std::span<const Product> products, cudaStream_t stream);
  std::size_t measured() const;
  std::string save() const;
  Status load(std::string_view text);
  std::size_t bytes() const { return kWorkspaceBytes; }

 private:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  struct Key {
    std::int64_t rows = 0, n = 0, k = 0, x_stride = 0, out_stride = 0;
    int in = 0, out = 0, accumulate = 0, alignment = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    cublasLtMatmulAlgo_t algo{};
    bool measured = false;
  };
  struct Setup;  // descriptors of one key

  BlasPlans(cublasLtHandle_t handle, void* workspace, std::string signature)
      : handle_(handle), workspace_(workspace), signature_(std::move(signature)) {}
  static Key key_of(const Product& product);
  Result<std::map<Key, Plan>::iterator> plan_for(const Key& key, const Setup& setup);
  Result<float> measure(const Setup& setup, const cublasLtMatmulAlgo_t& algo, std::span<const Product> products,
                        cudaStream_t stream);
  Status launch(const Setup& setup, const cublasLtMatmulAlgo_t& algo, const Product& product, cudaStream_t stream);

  cublasLtHandle_t handle_;
  void* workspace_;
  std::string signature_;  // what a saved choice holds for
  std::map<Key, Plan> plans_;
};

}  // namespace levada::kernels::cuda
