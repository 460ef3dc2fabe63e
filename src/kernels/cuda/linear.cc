#include "kernels/cuda/linear.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/blas_plans.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/quantize.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/skinny.h"
#include "kernels/cuda/tiles.h"

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

constexpr std::int64_t kScaleBlock = 128;

// cuBLASLt's f8 products take multiples of 8 rows.
std::int64_t padded(std::int64_t rows) { return (rows + 7) / 8 * 8; }
std::int64_t blocks_of(std::int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

// Rows on their way: after the norm, before SiLU or in padded products, and as f8 with their scales.
struct ScratchRows {
  Scratch normed, pairs, f8, f8_scales;
};

class CudaLinears final : public Linears {
 public:
  CudaLinears(const LinearsOptions& options, std::unique_ptr<BlasPlans> plans, ScratchRows scratch)
      : options_(options), plans_(std::move(plans)), scratch_(std::move(scratch)) {}

  Status run(const LinearCall& call, cudaStream_t stream) override {
    LEVADA_RETURN_IF_ERROR(check(call));
    if (call.x.shape[0] == 0) return {};
    if (fits_skinny(call)) return run_skinny(call, stream);
    if (fits_tiles(call)) return run_tiles(call, stream);
    TensorView x = call.x;
    if (call.norm.data != nullptr) {
      x = scratch_view(scratch_.normed, x.shape[0], x.shape[1]);
      LEVADA_RETURN_IF_ERROR(rms_norm(call.x, call.norm, call.eps, x, stream));
    }
    const Product product = product_of(call);
    if (is_f8(call)) {
      const TensorView scales =
          TensorView::of(scratch_.f8_scales.get(), DType::kF32, {x.shape[1] / kScaleBlock, padded(x.shape[0])},
                         device::DeviceKind::kCuda);
      LEVADA_RETURN_IF_ERROR(quantize_rows(x, product.x, scales, stream));
    }
    const bool aside = product.out.data != call.out.data && call.end != LinearEnd::kSiluMul;
    if (aside && product.accumulate) LEVADA_RETURN_IF_ERROR(copy_rows(call.out, product.out, stream));
    LEVADA_RETURN_IF_ERROR(plans_->multiply(product, stream));
    if (aside) return copy_rows(product.out, call.out, stream);
    if (call.end != LinearEnd::kSiluMul) return {};
    TensorView pairs = product.out;
    pairs.shape[0] = call.out.shape[0];
    return silu_mul(pairs, call.out, stream);
  }

  Result<bool> tune(std::span<const LinearCall> calls, cudaStream_t stream) override {
    std::vector<Product> products;
    for (const LinearCall& call : calls) {
      LEVADA_RETURN_IF_ERROR(check(call));
      if (call.x.shape[0] == 0 || fits_skinny(call) || fits_tiles(call)) return false;
      products.push_back(product_of(call));
    }
    if (products.empty()) return false;
    return plans_->tune(products, stream);
  }

  std::string save_plans() const override { return plans_->save(); }
  std::size_t measured_plans() const override { return plans_->measured(); }
  Status load_plans(std::string_view text) override { return plans_->load(text); }

  std::size_t bytes() const override {
    const std::int64_t rows = padded(options_.max_rows), f8 = options_.max_f8_width;
    const auto elements = static_cast<std::size_t>(rows * (options_.max_norm_width + options_.max_pair_width));
    return plans_->bytes() + elements * bytes_of(options_.dtype) +
           static_cast<std::size_t>(rows * (f8 + 4 * blocks_of(f8)));
  }

 private:
  static bool is_f8(const LinearCall& call) { return call.w.dtype == DType::kF8E4M3; }

  TensorView scratch_view(const Scratch& scratch, std::int64_t rows, std::int64_t width) const {
    return TensorView::of(scratch.get(), options_.dtype, {rows, width}, device::DeviceKind::kCuda);
  }

  // The first rows of `from`, as many as both have.
  static Status copy_rows(const TensorView& from, const TensorView& to, cudaStream_t stream) {
    const std::size_t size = bytes_of(from.dtype);
    return check_cuda(cudaMemcpy2DAsync(to.data, static_cast<std::size_t>(to.strides[0]) * size, from.data,
                                        static_cast<std::size_t>(from.strides[0]) * size,
                                        static_cast<std::size_t>(from.shape[1]) * size,
                                        static_cast<std::size_t>(std::min(from.shape[0], to.shape[0])),
                                        cudaMemcpyDeviceToDevice, stream),
                      "copying rows");
  }

  // The product itself: from the normed rows if there is a norm, as f8 if the weights are; into the pairs if SiLU
  // follows or padding rows would be written past out's end.
  Product product_of(const LinearCall& call) const {
    Product product{call.x, call.w, call.out, call.end == LinearEnd::kAdd};
    const std::int64_t rows = is_f8(call) ? padded(call.x.shape[0]) : call.x.shape[0], k = call.x.shape[1];
    if (call.norm.data != nullptr) product.x = scratch_view(scratch_.normed, rows, k);
    if (is_f8(call)) {
      product.x = TensorView::of(scratch_.f8.get(), DType::kF8E4M3, {rows, k}, device::DeviceKind::kCuda);
      product.x_scale = static_cast<const float*>(scratch_.f8_scales.get());
      product.w_scale = call.w_scale.as<const float>();
    }
    if (call.end == LinearEnd::kSiluMul || rows != call.out.shape[0]) {
      product.out = scratch_view(scratch_.pairs, rows, call.w.shape[0]);
    }
    return product;
  }

  Status check(const LinearCall& call) const {
    const std::int64_t rows = call.x.shape[0], k = call.x.shape[1], n = call.w.shape[0];
    const bool pairs = call.end == LinearEnd::kSiluMul, normed = call.norm.data != nullptr;
    LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(call.x) && call.x.dtype == options_.dtype, kName,
                                  "x is [R, K] in 16-byte packs, of the options' type"));
    LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(call.w) && call.w.shape[1] == k && call.w.strides[0] == k &&
                                      (is_f8(call) || call.w.dtype == options_.dtype),
                                  kName, "w is [N, K] of x's type or f8, contiguous"));
    if (is_f8(call)) LEVADA_RETURN_IF_ERROR(check_f8(call));
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

  Status check_f8(const LinearCall& call) const {
    const std::int64_t k = call.x.shape[1], n = call.w.shape[0], scale_columns = (blocks_of(k) + 3) / 4 * 4;
    const TensorView& scale = call.w_scale;
    LEVADA_RETURN_IF_ERROR(expect(options_.dtype == DType::kBF16 && call.out.dtype == DType::kBF16 &&
                                      k % kScaleBlock == 0 && k <= options_.max_f8_width && n % 16 == 0 &&
                                      n <= options_.max_pair_width,
                                  kName,
                                  "f8 weights take bfloat16 rows, K a multiple of 128 up to max_f8_width, N a multiple "
                                  "of 16 up to max_pair_width"));
    return expect(scale.data != nullptr && scale.rank == 2 && scale.place == device::DeviceKind::kCuda &&
                      scale.dtype == DType::kF32 && scale.shape[0] == blocks_of(n) && scale.shape[1] == scale_columns &&
                      scale.strides[0] == scale_columns && scale.strides[1] == 1,
                  kName, "w_scale is float32 [N/128, K/128], columns padded to a multiple of 4");
  }

  const LinearsOptions options_;
  const std::unique_ptr<BlasPlans> plans_;
  const ScratchRows scratch_;
};

}  // namespace

Result<std::unique_ptr<Linears>> Linears::create(const LinearsOptions& options) {
  LEVADA_RETURN_IF_ERROR(expect(is_activation(options.dtype) && options.max_rows >= 1 && options.max_norm_width >= 0 &&
                                    options.max_pair_width >= 0 && options.max_f8_width >= 0,
                                kName, "options: a floating type, at least one row, widths of at least 0"));
  LEVADA_RETURN_IF_ERROR(prepare_skinny());
  LEVADA_RETURN_IF_ERROR(prepare_tiles());
  LEVADA_ASSIGN_OR_RETURN(auto plans, BlasPlans::create());
  const std::int64_t rows = padded(options.max_rows), f8 = options.max_f8_width;
  ScratchRows scratch;
  LEVADA_ASSIGN_OR_RETURN(scratch.normed, allocate(rows * options.max_norm_width, options.dtype));
  LEVADA_ASSIGN_OR_RETURN(scratch.pairs, allocate(rows * options.max_pair_width, options.dtype));
  LEVADA_ASSIGN_OR_RETURN(scratch.f8, allocate(rows * f8, DType::kF8E4M3));
  LEVADA_ASSIGN_OR_RETURN(scratch.f8_scales, allocate(rows * blocks_of(f8), DType::kF32));
  return std::unique_ptr<Linears>(std::make_unique<CudaLinears>(options, std::move(plans), std::move(scratch)));
}

}  // namespace levada::kernels::cuda
