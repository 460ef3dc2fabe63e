#include "model/cuda/cuda_weights.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/log.h"

namespace levada::model {

using device::DeviceKind;
using device::TensorView;

namespace {

constexpr std::int64_t kStagingBytes = 64 << 20;

std::int64_t rows_of(Weight weight, const ModelConfig& c) {
  switch (weight) {
    case Weight::kEmbedding:
    case Weight::kHead: return c.vocabulary;
    case Weight::kQ: return c.heads * c.head_dim;
    case Weight::kK:
    case Weight::kV: return c.kv_heads * c.head_dim;
    case Weight::kGate:
    case Weight::kUp: return c.intermediate;
    case Weight::kQNorm:
    case Weight::kKNorm: return c.head_dim;
    default: return c.hidden;
  }
}

std::int64_t columns_of(Weight weight, const ModelConfig& c) {
  if (weight == Weight::kO) return c.heads * c.head_dim;
  return weight == Weight::kDown ? c.intermediate : c.hidden;
}

std::int64_t blocks_of(std::int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

}  // namespace

// Converts on the host, a staging buffer at a time, and copies.
class CudaWeights::Loader {
 public:
  Loader(DecoderSource& source, DType dtype, device::Device& device, CudaWeights& into)
      : source_(source), config_(source.config()), dtype_(dtype), device_(device), into_(into) {}

  Status open() {
    LEVADA_ASSIGN_OR_RETURN(stream_, device_.make_stream());
    LEVADA_ASSIGN_OR_RETURN(staging_, device_.allocate_pinned(kStagingBytes));
    return {};
  }

  Result<TensorView> vector(Weight weight, std::int64_t layer = 0) {
    const std::int64_t length = rows_of(weight, config_);
    LEVADA_ASSIGN_OR_RETURN(std::byte * to, allocate(length * 4));
    source_.read(weight, layer, 0, length, DType::kF32, staging_->data());
    LEVADA_RETURN_IF_ERROR(send(to, length * 4));
    return TensorView::of(to, DType::kF32, {length}, DeviceKind::kCuda);
  }

  Result<TensorView> matrix(std::initializer_list<Weight> weights, std::int64_t layer = 0) {
    const std::int64_t columns = columns_of(*weights.begin(), config_);
    const std::int64_t row_bytes = columns * static_cast<std::int64_t>(bytes_of(dtype_));
    std::int64_t rows = 0;
    for (Weight weight : weights) rows += rows_of(weight, config_);
    LEVADA_ASSIGN_OR_RETURN(std::byte* const memory, allocate(rows * row_bytes));
    std::byte* to = memory;
    for (Weight weight : weights) {
      for (std::int64_t first = 0, count = 0; first < rows_of(weight, config_); first += count) {
        count = std::min(rows_of(weight, config_) - first, std::max<std::int64_t>(1, kStagingBytes / row_bytes));
        source_.read(weight, layer, first, count, dtype_, staging_->data());
        LEVADA_RETURN_IF_ERROR(send(to, count * row_bytes));
        to += count * row_bytes;
      }
    }
    return TensorView::of(memory, dtype_, {rows, columns}, DeviceKind::kCuda);
  }

  // As stored if the products take it so, else as dtype.
  Result<CudaMatrix> projection(std::initializer_list<Weight> weights, std::int64_t layer) {
    CudaMatrix matrix;
    if (!keeps_f8(weights, layer)) {
      LEVADA_ASSIGN_OR_RETURN(matrix.numbers, this->matrix(weights, layer));
      return matrix;
    }
    const std::int64_t columns = columns_of(*weights.begin(), config_);
    std::int64_t rows = 0;
    std::vector<float> scales;
    for (Weight weight : weights) {
      rows += rows_of(weight, config_);
      const std::vector<float> own = source_.scales(weight, layer);
      scales.insert(scales.end(), own.begin(), own.end());
    }
    LEVADA_ASSIGN_OR_RETURN(std::byte* const numbers, allocate(rows * columns));
    LEVADA_RETURN_IF_ERROR(send_f8(weights, layer, columns, numbers));
    matrix.numbers = TensorView::of(numbers, DType::kF8E4M3, {rows, columns}, DeviceKind::kCuda);
    LEVADA_ASSIGN_OR_RETURN(matrix.scale, send_scales(scales, blocks_of(columns)));
    into_.f8_inputs_ = std::max(into_.f8_inputs_, columns);
    into_.f8_outputs_ = std::max(into_.f8_outputs_, rows);
    return matrix;
  }

  Result<TensorView> cos_sin() {
    const std::int64_t positions = source_.info().context_length_tokens, count = positions * config_.head_dim;
    std::vector<float> host(static_cast<std::size_t>(count));
    source_.fill_cos_sin(host.data());
    LEVADA_ASSIGN_OR_RETURN(std::byte* const to, allocate(count * 4));
    LEVADA_RETURN_IF_ERROR(stream_->copy(to, host.data(), host.size() * sizeof(float)));
    LEVADA_RETURN_IF_ERROR(stream_->synchronize());
    return TensorView::of(to, DType::kF32, {positions, config_.head_dim}, DeviceKind::kCuda);
  }

  Result<CudaLayerWeights> layer(std::int64_t l) {
    CudaLayerWeights layer;
    LEVADA_ASSIGN_OR_RETURN(layer.input_norm, vector(Weight::kInputNorm, l));
    LEVADA_ASSIGN_OR_RETURN(layer.post_norm, vector(Weight::kPostNorm, l));
    if (config_.qk_norm) {
      LEVADA_ASSIGN_OR_RETURN(layer.q_norm, vector(Weight::kQNorm, l));
      LEVADA_ASSIGN_OR_RETURN(layer.k_norm, vector(Weight::kKNorm, l));
    }
    LEVADA_ASSIGN_OR_RETURN(layer.qkv, projection({Weight::kQ, Weight::kK, Weight::kV}, l));
    LEVADA_ASSIGN_OR_RETURN(layer.o, projection({Weight::kO}, l));
    LEVADA_ASSIGN_OR_RETURN(layer.gate_up, projection({Weight::kGate, Weight::kUp}, l));
    LEVADA_ASSIGN_OR_RETURN(layer.down, projection({Weight::kDown}, l));
    return layer;
  }

 private:
  // Whole blocks of each matrix follow one another; the last may end within one (kernels/cuda/linear.h).
  bool keeps_f8(std::initializer_list<Weight> weights, std::int64_t layer) {
    const bool stored = std::any_of(weights.begin(), weights.end(), [&](Weight w) { return source_.is_f8(w, layer); });
    if (!stored) return false;
    bool taken = dtype_ == DType::kBF16 && columns_of(*weights.begin(), config_) % kScaleBlock == 0;
    for (Weight weight : weights) {
      const std::int64_t whole = weight == *(weights.end() - 1) ? 16 : kScaleBlock;
      taken = taken && source_.is_f8(weight, layer) && rows_of(weight, config_) % whole == 0;
    }
    if (!taken && !std::exchange(said_, true)) {
      LEVADA_LOG_WARNING("float8 weights are converted to ", to_string(dtype_),
                         ": float8 products take bfloat16 activations and matrices of whole 128 x 128 blocks");
    }
    return taken;
  }
  Status send_f8(std::initializer_list<Weight> weights, std::int64_t layer, std::int64_t columns, std::byte* to) {
    for (Weight weight : weights) {
      const std::int64_t rows = rows_of(weight, config_), most = std::max<std::int64_t>(1, kStagingBytes / columns);
      for (std::int64_t first = 0, count = 0; first < rows; first += count, to += count * columns) {
        count = std::min(rows - first, most);
        source_.read_f8(weight, layer, first, count, staging_->data());
        LEVADA_RETURN_IF_ERROR(send(to, count * columns));
      }
    }
    return {};
  }
  // With rows padded to multiples of four.
  Result<TensorView> send_scales(const std::vector<float>& scales, std::int64_t columns) {
    const std::int64_t rows = static_cast<std::int64_t>(scales.size()) / columns, padded = (columns + 3) / 4 * 4;
    LEVADA_CHECK(rows * padded * 4 <= kStagingBytes, "scales fit the staging buffer");
    auto* const host = static_cast<float*>(staging_->data());
    std::fill(host, host + rows * padded, 0.0f);
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(scales.data() + r * columns, columns, host + r * padded);
    LEVADA_ASSIGN_OR_RETURN(std::byte* const to, allocate(rows * padded * 4));
    LEVADA_RETURN_IF_ERROR(send(to, rows * padded * 4));
    return TensorView::of(to, DType::kF32, {rows, padded}, DeviceKind::kCuda);
  }
  Result<std::byte*> allocate(std::int64_t bytes) {
    LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<device::DeviceBuffer> buffer,
                            device_.allocate(static_cast<std::size_t>(bytes)));
    into_.bytes_ += bytes;
    into_.buffers_.push_back(std::move(buffer));
    return static_cast<std::byte*>(into_.buffers_.back()->data());
  }
  Status send(void* to, std::int64_t bytes) {
    LEVADA_RETURN_IF_ERROR(stream_->copy(to, staging_->data(), static_cast<std::size_t>(bytes)));
    return stream_->synchronize();  // the staging buffer is filled anew
  }

  DecoderSource& source_;
  const ModelConfig& config_;
  const DType dtype_;
  device::Device& device_;
  CudaWeights& into_;
  bool said_ = false;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::DeviceBuffer> staging_;
};

Result<CudaWeights> CudaWeights::load(DecoderSource& source, DType dtype, device::Device& device) {
  CudaWeights weights;
  Loader loader(source, dtype, device, weights);
  LEVADA_RETURN_IF_ERROR(loader.open());
  LEVADA_ASSIGN_OR_RETURN(weights.embedding, loader.matrix({Weight::kEmbedding}));
  LEVADA_ASSIGN_OR_RETURN(weights.final_norm, loader.vector(Weight::kFinalNorm));
  weights.head = weights.embedding;
  if (!source.config().tied) {
    LEVADA_ASSIGN_OR_RETURN(weights.head, loader.matrix({Weight::kHead}));
  }
  LEVADA_ASSIGN_OR_RETURN(weights.cos_sin, loader.cos_sin());
  const std::vector<LayerKvScales> kv_scales = source.kv_scales();
  for (std::int64_t l = 0; l < source.config().layers; ++l) {
    LEVADA_ASSIGN_OR_RETURN(CudaLayerWeights layer, loader.layer(l));
    if (!kv_scales.empty()) layer.kv_scales = kv_scales[static_cast<std::size_t>(l)];
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

}  // namespace levada::model
