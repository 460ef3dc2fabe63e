#include "kernels/cuda/blas_plans.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kCandidates = 24;
constexpr const char* kHeader = "levada linear plans 1";

Status check_blas(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return internal_error(std::string("cuBLASLt: ") + doing + ": " + cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    case DType::kF8E4M3: return CUDA_R_8F_E4M3;
    default: return CUDA_R_32F;
  }
}

// The largest power of two up to 16 that divides the address and the row's bytes.
int alignment_of(const TensorView& view) {
  const auto bits = reinterpret_cast<std::uintptr_t>(view.data) |
                    static_cast<std::uintptr_t>(view.strides[0] * static_cast<std::int64_t>(bytes_of(view.dtype)));
  return bits == 0 ? 16 : static_cast<int>(std::min<std::uintptr_t>(16, bits & (~bits + 1)));
}

struct EventPair {
  cudaEvent_t start = nullptr, stop = nullptr;
  EventPair() = default;
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
  ~EventPair() {
    if (start != nullptr) cudaEventDestroy(start);
    if (stop != nullptr) cudaEventDestroy(stop);
  }
};

}  // namespace

// Column-major, as the library sees it: out^T [N, R] = (w^T [K, N])^T x^T [K, R].
struct BlasPlans::Setup {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  float beta = 0;

  Setup() = default;
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  ~Setup() {
    for (cublasLtMatrixLayout_t layout : {w, x, out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
  }
  Status open(const Key& key) {
    const cudaDataType_t in = type_of(static_cast<DType>(key.in)), result = type_of(static_cast<DType>(key.out));
    const auto rows = static_cast<std::uint64_t>(key.rows), n = static_cast<std::uint64_t>(key.n),
               k = static_cast<std::uint64_t>(key.k);
    beta = key.accumulate != 0 ? 1.0f : 0.0f;
    LEVADA_RETURN_IF_ERROR(
        check_blas(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing"));
    LEVADA_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
    if (in == CUDA_R_8F_E4M3) {
      LEVADA_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
      LEVADA_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
    }
    LEVADA_RETURN_IF_ERROR(check_blas(cublasLtMatrixLayoutCreate(&w, in, k, n, key.k), "describing w"));
    LEVADA_RETURN_IF_ERROR(check_blas(cublasLtMatrixLayoutCreate(&x, in, k, rows, key.x_stride), "describing x"));
    return check_blas(cublasLtMatrixLayoutCreate(&out, result, n, rows, key.out_stride), "describing out");
  }
  // The scales of f8 factors, which algorithms are chosen by as well.
  Status aim(const Product& p) const {
    if (p.w_scale == nullptr) return {};
    LEVADA_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.w_scale));
    return set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.x_scale);
  }
  template <class V>
  Status set(cublasLtMatmulDescAttributes_t attribute, V value) const {
    return check_blas(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value), "describing");
  }
};

Result<std::unique_ptr<BlasPlans>> BlasPlans::create() {
  int device = 0;
  cudaDeviceProp properties{};
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaGetDevice(&device), "asking for the device"));
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaGetDeviceProperties(&properties, device), "asking for the device's name"));
  cublasLtHandle_t handle = nullptr;
  if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) return unavailable("cuBLASLt can't be started on this GPU");
  void* workspace = nullptr;
  if (cudaMalloc(&workspace, kWorkspaceBytes) != cudaSuccess) {
    cudaGetLastError();
    cublasLtDestroy(handle);
    return resource_exhausted("no 32 MiB of GPU memory are free for the workspace of cuBLASLt");
  }
  std::string signature = "cublaslt " + std::to_string(cublasLtGetVersion()) + " on " + properties.name;
  return std::unique_ptr<BlasPlans>(new BlasPlans(handle, workspace, std::move(signature)));
}

BlasPlans::~BlasPlans() {
  cudaFree(workspace_);
  cublasLtDestroy(handle_);
}

BlasPlans::Key BlasPlans::key_of(const Product& p) {
  Key key;
  key.rows = p.x.shape[0], key.n = p.w.shape[0], key.k = p.x.shape[1];
  key.x_stride = p.x.strides[0], key.out_stride = p.out.strides[0];
  key.in = static_cast<int>(p.x.dtype), key.out = static_cast<int>(p.out.dtype);
  key.accumulate = p.accumulate ? 1 : 0;
  key.alignment = std::min({alignment_of(p.x), alignment_of(p.w), alignment_of(p.out)});
  return key;
}

Status BlasPlans::launch(const Setup& setup, const cublasLtMatmulAlgo_t& algo, const Product& p, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(setup.aim(p));
  const float one = 1;
  return check_blas(
      cublasLtMatmul(handle_, setup.product, &one, p.w.data, setup.w, p.x.data, setup.x, &setup.beta, p.out.data,
                     setup.out, p.out.data, setup.out, &algo, workspace_, kWorkspaceBytes, stream),
      "multiplying");
}

namespace {

Result<std::vector<cublasLtMatmulHeuristicResult_t>> candidates(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                                                cublasLtMatrixLayout_t w, cublasLtMatrixLayout_t x,
                                                                cublasLtMatrixLayout_t out, int alignment,
                                                                std::size_t workspace, int most) {
  cublasLtMatmulPreference_t wanted = nullptr;
  LEVADA_RETURN_IF_ERROR(check_blas(cublasLtMatmulPreferenceCreate(&wanted), "asking for algorithms"));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(&cublasLtMatmulPreferenceDestroy)>
      owner(wanted, cublasLtMatmulPreferenceDestroy);
  const auto bytes = static_cast<std::uint32_t>(alignment);
  const std::uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // split sums are not rounded before they meet
  cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                       sizeof reductions);
  cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublasLtMatmulPreferenceSetAttribute(wanted, attribute, &bytes, sizeof bytes);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  LEVADA_RETURN_IF_ERROR(
      check_blas(cublasLtMatmulAlgoGetHeuristic(handle, product, w, x, out, out, wanted, most, found.data(), &count),
                 "asking for algorithms"));
  if (count == 0) return internal_error("cuBLASLt: no algorithm for this shape");
  found.resize(static_cast<std::size_t>(count));
  return found;
}

}  // namespace

Result<std::map<BlasPlans::Key, BlasPlans::Plan>::iterator> BlasPlans::plan_for(const Key& key, const Setup& setup) {
  if (const auto known = plans_.find(key); known != plans_.end()) return known;
  LEVADA_ASSIGN_OR_RETURN(const auto found, candidates(handle_, setup.product, setup.w, setup.x, setup.out,
                                                       key.alignment, kWorkspaceBytes, 1));
  return plans_.emplace(key, Plan{found.front().algo, false}).first;
}

Status BlasPlans::multiply(const Product& product, cudaStream_t stream) {
  const Key key = key_of(product);
  Setup setup;
  LEVADA_RETURN_IF_ERROR(setup.open(key));
  LEVADA_RETURN_IF_ERROR(setup.aim(product));
  LEVADA_ASSIGN_OR_RETURN(const auto plan, plan_for(key, setup));
  return launch(setup, plan->second.algo, product, stream);
}

// Milliseconds a product, over all of `products` in turn.
Result<float> BlasPlans::measure(const Setup& setup, const cublasLtMatmulAlgo_t& algo,
                                 std::span<const Product> products, cudaStream_t stream) {
  constexpr std::size_t kLaunches = 8;
  EventPair events;
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventCreate(&events.start), "making an event"));
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventCreate(&events.stop), "making an event"));
  LEVADA_RETURN_IF_ERROR(launch(setup, algo, products.back(), stream));
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventRecord(events.start, stream), "recording an event"));
  for (std::size_t i = 0; i < kLaunches; ++i) {
    LEVADA_RETURN_IF_ERROR(launch(setup, algo, products[i % products.size()], stream));
  }
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventRecord(events.stop, stream), "recording an event"));
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventSynchronize(events.stop), "measuring products"));
  float milliseconds = 0;
  LEVADA_RETURN_IF_ERROR(check_cuda(cudaEventElapsedTime(&milliseconds, events.start, events.stop), "measuring"));
  return milliseconds / static_cast<float>(kLaunches);
}

Result<bool> BlasPlans::tune(std::span<const Product> products, cudaStream_t stream) {
  const Key key = key_of(products.front());
  if (const auto known = plans_.find(key); known != plans_.end() && known->second.measured) return false;
  Setup setup;
  LEVADA_RETURN_IF_ERROR(setup.open(key));
  LEVADA_RETURN_IF_ERROR(setup.aim(products.front()));
  LEVADA_ASSIGN_OR_RETURN(const auto found, candidates(handle_, setup.product, setup.w, setup.x, setup.out,
                                                       key.alignment, kWorkspaceBytes, kCandidates));
  Plan best{found.front().algo, true};
  float least = 0;
  for (const auto& candidate : found) {
    const Result<float> time = measure(setup, candidate.algo, products, stream);
    if (!time.ok()) continue;  // the library offers some algorithms that it then declines to run
    if (least == 0 || *time < least) least = *time, best.algo = candidate.algo;
  }
  if (least == 0) return internal_error("cuBLASLt: no algorithm ran for this shape");
  plans_.insert_or_assign(key, best);
  return true;
}

std::size_t BlasPlans::measured() const {
  return static_cast<std::size_t>(
      std::count_if(plans_.begin(), plans_.end(), [](const auto& entry) { return entry.second.measured; }));
}

std::string BlasPlans::save() const {
  std::ostringstream text;
  text << kHeader << ' ' << signature_ << '\n';
  for (const auto& [key, plan] : plans_) {
    if (!plan.measured) continue;
    text << key.rows << ' ' << key.n << ' ' << key.k << ' ' << key.x_stride << ' ' << key.out_stride << ' ' << key.in
         << ' ' << key.out << ' ' << key.accumulate << ' ' << key.alignment;
    for (const std::uint64_t word : plan.algo.data) text << ' ' << word;
    text << '\n';
  }
  return text.str();
}

Status BlasPlans::load(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  std::getline(lines, line);
  if (line != kHeader + (' ' + signature_)) {
    return Status(StatusCode::kFailedPrecondition, "these plans are not for " + signature_);
  }
  std::map<Key, Plan> read;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Key key;
    Plan plan;
    plan.measured = true;
    words >> key.rows >> key.n >> key.k >> key.x_stride >> key.out_stride >> key.in >> key.out >> key.accumulate >>
        key.alignment;
    for (std::uint64_t& word : plan.algo.data) words >> word;
    Setup setup;
    cublasLtMatmulHeuristicResult_t result{};
    if (words.fail() || !setup.open(key).ok() ||
        cublasLtMatmulAlgoCheck(handle_, setup.product, setup.w, setup.x, setup.out, setup.out, &plan.algo, &result) !=
            CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > kWorkspaceBytes) {
      return data_loss("linear plans: line " + std::to_string(read.size() + 2) + " is damaged");
    }
    read.emplace(key, plan);
  }
  for (const auto& [key, plan] : read) plans_.insert_or_assign(key, plan);
  return {};
}

}  // namespace levada::kernels::cuda
