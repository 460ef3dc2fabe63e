#include "kernels/cuda/linear.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/blas_plans.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/skinny.h"

namespace levada::kernels::cuda {
namespace {

constexpr const char* kName = "linear";

struct CudaFree {
  void operator()(void* data) const { cudaFree(data); }
};
using Scratch = std::unique_ptr<void, CudaFree>;

Result<Scratch> allocate(std::int64_t elements, DType dtype) {
  void* data = nullptr;
  const std::size_t bytes = static_cast<std::size_t>(elements) * bytes_of(dtype);
  if (bytes > 0 && cudaMalloc(&data, bytes) != cudaSuccess) {
    cudaGetLastError();
    return resource_exhausted("linear: no " + std::to_string(bytes) + " bytes of GPU memory are free for scratch rows");
  }
  return Scratch(data);
}

class CudaLinears final : public Linears {
 public:
  CudaLinears(const LinearsOptions& options, std::unique_ptr<BlasPlans> plans, Scratch normed, Scratch pairs)
      : options_(options), plans_(std::move(plans)), normed_(std::move(normed)), pairs_(std::move(pairs)) {}

  Status run(const LinearCall& call, cudaStream_t stream) override {
    LEVADA_RETURN_IF_ERROR(check(call));
    if (call.x.shape[0] == 0) return {};
    if (fits_skinny(call)) return run_skinny(call, stream);
    const Product product = product_of(call);
    if (call.norm.data != nullptr) {
      LEVADA_RETURN_IF_ERROR(rms_norm(call.x, call.norm, call.eps, product.x, stream));
    }
    LEVADA_RETURN_IF_ERROR(plans_->multiply(product, stream));
    if (call.end == LinearEnd::kSiluMul) return silu_mul(product.out, call.out, stream);
    return {};
  }

  Result<bool> tune(std::span<const LinearCall> calls, cudaStream_t stream) override {
    std::vector<Product> products;
    for (const LinearCall& call : calls) {
      LEVADA_RETURN_IF_ERROR(check(call));
      if (call.x.shape[0] == 0 || fits_skinny(call)) return false;
      products.push_back(product_of(call));
    }
    if (products.empty()) return false;
    return plans_->tune(products, stream);
  }

  std::string save_plans() const override { return plans_->save(); }
  Status load_plans(std::string_view text) override { return plans_->load(text); }

  std::size_t bytes() const override {
    const auto elements = options_.max_rows * (options_.max_norm_width + options_.max_pair_width);
    return plans_->bytes() + static_cast<std::size_t>(elements) * bytes_of(options_.dtype);
  }

 private:
  // The product itself: from the normed rows if there is a norm, into the pairs if SiLU follows.
  Product product_of(const LinearCall& call) const {
    Product product{call.x, call.w, call.out, call.end == LinearEnd::kAdd};
    const std::int64_t rows = call.x.shape[0];
    if (call.norm.data != nullptr) {
      product.x = TensorView::of(normed_.get(), options_.dtype, {rows, call.x.shape[1]}, device::DeviceKind::kCuda);
    }
    if (call.end == LinearEnd::kSiluMul) {
      product.out = TensorView::of(pairs_.get(), options_.dtype, {rows, call.w.shape[0]}, device::DeviceKind::kCuda);
    }
    return product;
  }

  Status check(const LinearCall& call) const {
    const std::int64_t rows = call.x.shape[0], k = call.x.shape[1], n = call.w.shape[0];
    const bool pairs = call.end == LinearEnd::kSiluMul, normed = call.norm.data != nullptr;
    LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(call.x) && call.x.dtype == options_.dtype, kName,
                                  "x is [R, K] in 16-byte packs, of the options' type"));
    LEVADA_RETURN_IF_ERROR(expect(
        is_packed_rows(call.w) && call.w.dtype == options_.dtype && call.w.shape[1] == k && call.w.strides[0] == k,
        kName, "w is [N, K] of x's type, contiguous"));
    LEVADA_RETURN_IF_ERROR(expect(rows <= options_.max_rows, kName, "x has more rows than max_rows"));
    LEVADA_RETURN_IF_ERROR(expect(!normed || (is_vector(call.norm, DType::kF32, k) && k <= options_.max_norm_width &&
                                              reinterpret_cast<std::uintptr_t>(call.norm.data) % 16 == 0),
                                  kName, "norm is float32 [K] on 16 bytes, K at most max_norm_width"));
    LEVADA_RETURN_IF_ERROR(expect(!pairs || (n % 2 == 0 && n <= options_.max_pair_width), kName,
                                  "SiLU takes an even N up to max_pair_width"));
    const TensorView& out = call.out;
    LEVADA_RETURN_IF_ERROR(expect(out.rank == 2 && out.place == device::DeviceKind::kCuda && out.shape[0] == rows &&
                                      out.shape[1] == (pairs ? n / 2 : n) && out.strides[1] == 1 &&
                                      out.strides[0] >= out.shape[1] && out.data != call.x.data,
                                  kName, "out is [R, N], of N/2 columns after SiLU, and not x"));
    LEVADA_RETURN_IF_ERROR(expect(!pairs || is_packed_rows(out), kName, "SiLU writes [R, N/2] in 16-byte packs"));
    return expect(out.dtype == call.x.dtype || (out.dtype == DType::kF32 && call.end == LinearEnd::kStore), kName,
                  "out has x's type, or float32 where it is only stored");
  }

  const LinearsOptions options_;
  const std::unique_ptr<BlasPlans> plans_;
  const Scratch normed_, pairs_;
};

}  // namespace

Result<std::unique_ptr<Linears>> Linears::create(const LinearsOptions& options) {
  LEVADA_RETURN_IF_ERROR(expect(is_activation(options.dtype) && options.max_rows >= 1 && options.max_norm_width >= 0 &&
                                    options.max_pair_width >= 0,
                                kName, "options: a floating type, at least one row, widths of at least 0"));
  LEVADA_RETURN_IF_ERROR(prepare_skinny());
  LEVADA_ASSIGN_OR_RETURN(auto plans, BlasPlans::create());
  LEVADA_ASSIGN_OR_RETURN(Scratch normed, allocate(options.max_rows * options.max_norm_width, options.dtype));
  LEVADA_ASSIGN_OR_RETURN(Scratch pairs, allocate(options.max_rows * options.max_pair_width, options.dtype));
  return std::unique_ptr<Linears>(
      std::make_unique<CudaLinears>(options, std::move(plans), std::move(normed), std::move(pairs)));
}

}  // namespace levada::kernels::cuda
