#include "model/cuda/draft_weights.h"

#include <algorithm>
#include <cstring>

namespace levada::model {

using device::DeviceKind;
using device::TensorView;

namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kStagingBytes = 8 << 20;
constexpr std::int64_t kMaxHeadDim = 256;  // of the attention kernel

// Gives out memory from `base` on.
class Placer {
 public:
  Placer(std::byte* base, DType dtype) : base_(base), dtype_(dtype) {}
  TensorView matrix(std::int64_t rows, std::int64_t columns) { return place(dtype_, {rows, columns}, rows * columns); }
  TensorView vector(std::int64_t length) { return place(DType::kF32, {length}, length); }
  TensorView table(std::int64_t rows, std::int64_t columns) {
    return place(DType::kF32, {rows, columns}, rows * columns);
  }
  std::int64_t bytes() const { return used_; }

 private:
  TensorView place(DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t elements) {
    std::byte* const at = base_ == nullptr ? nullptr : base_ + used_;
    const std::int64_t bytes = elements * static_cast<std::int64_t>(bytes_of(dtype));
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return TensorView::of(at, dtype, shape, DeviceKind::kCuda);
  }
  std::byte* const base_;
  const DType dtype_;
  std::int64_t used_ = 0;
};

// Sends a source's tensors to where they lie, a staging buffer at a time.
class Upload {
 public:
  Upload(const DraftSource& source, DType dtype) : source_(source), config_(source.config()), dtype_(dtype) {}
  Status open(device::Device& device) {
    LEVADA_ASSIGN_OR_RETURN(stream_, device.make_stream());
    LEVADA_ASSIGN_OR_RETURN(staging_, device.allocate_pinned(kStagingBytes));
    return {};
  }
  // A matrix's rows, to the rows of `to` from to_row on.
  Status matrix(DraftWeight weight, std::int64_t layer, std::int64_t rows, const TensorView& to, std::int64_t to_row) {
    const std::int64_t row_bytes = to.shape[1] * static_cast<std::int64_t>(bytes_of(dtype_));
    const std::int64_t most = std::max<std::int64_t>(1, kStagingBytes / row_bytes);
    for (std::int64_t first = 0, count = 0; first < rows; first += count) {
      count = std::min(rows - first, most);
      source_.read(weight, layer, first, count, dtype_, staging_->data());
      LEVADA_RETURN_IF_ERROR(send(to.as<std::byte>() + (to_row + first) * row_bytes, count * row_bytes));
    }
    return {};
  }
  Status vector(DraftWeight weight, std::int64_t layer, std::int64_t length, const TensorView& to,
                std::int64_t first = 0) {
    source_.read(weight, layer, 0, length, DType::kF32, staging_->data());
    return send(to.as<float>() + first, length * 4);
  }
  // fc's columns, one matrix of `hidden` of them after the other.
  Status fc(const std::vector<TensorView>& to) {
    const std::int64_t size = static_cast<std::int64_t>(bytes_of(dtype_)), part = config_.hidden * size;
    const std::int64_t most = std::max<std::int64_t>(1, kStagingBytes / (config_.features() * size));
    for (std::int64_t first = 0, count = 0; first < config_.hidden; first += count) {
      count = std::min(config_.hidden - first, most);
      std::vector<std::byte> rows(static_cast<std::size_t>(count * config_.features() * size));
      source_.read(DraftWeight::kFc, 0, first, count, dtype_, rows.data());
      for (std::size_t j = 0; j < to.size(); ++j) {
        auto* const host = static_cast<std::byte*>(staging_->data());
        for (std::int64_t r = 0; r < count; ++r) {
          std::memcpy(host + r * part,
                      rows.data() + r * config_.features() * size + static_cast<std::int64_t>(j) * part,
                      static_cast<std::size_t>(part));
        }
        LEVADA_RETURN_IF_ERROR(send(to[j].as<std::byte>() + first * part, count * part));
      }
    }
    return {};
  }
  Status cos_sin(const TensorView& to) {
    std::vector<float> host(static_cast<std::size_t>(to.elements()));
    source_.fill_cos_sin(to.shape[0], host.data());
    LEVADA_RETURN_IF_ERROR(stream_->copy(to.data, host.data(), host.size() * sizeof(float)));
    return stream_->synchronize();
  }
  Status layer(std::int64_t l, const DraftTensors& to) {
    const std::int64_t q = config_.heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
    const std::int64_t inner = config_.intermediate, hidden = config_.hidden;
    const CudaLayerWeights& w = to.block.layers[static_cast<std::size_t>(l)];
    LEVADA_RETURN_IF_ERROR(vector(DraftWeight::kInputNorm, l, hidden, w.input_norm));
    LEVADA_RETURN_IF_ERROR(vector(DraftWeight::kPostNorm, l, hidden, w.post_norm));
    LEVADA_RETURN_IF_ERROR(vector(DraftWeight::kQNorm, l, config_.head_dim, w.q_norm));
    LEVADA_RETURN_IF_ERROR(vector(DraftWeight::kKNorm, l, config_.head_dim, w.k_norm));
    LEVADA_RETURN_IF_ERROR(vector(DraftWeight::kKNorm, l, config_.head_dim, to.context_k_norm, l * config_.head_dim));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kQ, l, q, w.qkv.numbers, 0));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kK, l, kv, w.qkv.numbers, q));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kV, l, kv, w.qkv.numbers, q + kv));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kK, l, kv, to.context_kv, l * 2 * kv));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kV, l, kv, to.context_kv, (l * 2 + 1) * kv));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kO, l, hidden, w.o.numbers, 0));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kGate, l, inner, w.gate_up.numbers, 0));
    LEVADA_RETURN_IF_ERROR(matrix(DraftWeight::kUp, l, inner, w.gate_up.numbers, inner));
    return matrix(DraftWeight::kDown, l, hidden, w.down.numbers, 0);
  }

 private:
  Status send(void* to, std::int64_t bytes) {
    LEVADA_RETURN_IF_ERROR(stream_->copy(to, staging_->data(), static_cast<std::size_t>(bytes)));
    return stream_->synchronize();  // the staging buffer is filled anew
  }
  const DraftSource& source_;
  const DraftConfig& config_;
  const DType dtype_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::DeviceBuffer> staging_;
};

Status refuse(const char* what, const char* field) {
  return invalid_argument(std::string("a draft with ") + what + " is not computed on CUDA", field);
}

}  // namespace

DraftTensors lay_out(const DraftConfig& config, DType dtype, std::int64_t context, std::byte* base,
                     std::int64_t& bytes) {
  const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  Placer at(base, dtype);
  DraftTensors tensors;
  for (std::size_t j = 0; j < config.target_layer_ids.size(); ++j) {
    tensors.fc.push_back(at.matrix(config.hidden, config.hidden));
  }
  tensors.hidden_norm = at.vector(config.hidden);
  tensors.context_kv = at.matrix(config.layers * 2 * kv, config.hidden);
  tensors.context_k_norm = at.vector(config.layers * config.head_dim);
  tensors.block.final_norm = at.vector(config.hidden);
  tensors.block.cos_sin = at.table(context, config.head_dim);
  for (std::int64_t l = 0; l < config.layers; ++l) {
    CudaLayerWeights layer;
    layer.input_norm = at.vector(config.hidden);
    layer.post_norm = at.vector(config.hidden);
    layer.q_norm = at.vector(config.head_dim);
    layer.k_norm = at.vector(config.head_dim);
    layer.qkv.numbers = at.matrix(q + 2 * kv, config.hidden);
    layer.o.numbers = at.matrix(config.hidden, q);
    layer.gate_up.numbers = at.matrix(2 * config.intermediate, config.hidden);
    layer.down.numbers = at.matrix(config.hidden, config.intermediate);
    tensors.block.layers.push_back(layer);
  }
  bytes = at.bytes();
  return tensors;
}

std::int64_t most_draft_bytes(const DraftRoom& room, std::int64_t hidden, DType dtype, std::int64_t context) {
  const std::int64_t matrices = room.parameters + room.layers * 2 * room.kv_width * hidden;
  const std::int64_t head_dim = std::min(room.kv_width, kMaxHeadDim);
  const std::int64_t vectors = 2 * hidden + room.layers * (2 * hidden + 3 * head_dim) + context * head_dim;
  const std::int64_t tensors = 5 + room.features / hidden + 8 * room.layers;
  return matrices * static_cast<std::int64_t>(bytes_of(dtype)) + vectors * 4 + tensors * kAlignment;
}

bool same_geometry(const DraftConfig& a, const DraftConfig& b) {
  DraftConfig other = b;  // what is in the numbers alone, or isn't computed with
  other.rope_theta = a.rope_theta;
  other.max_positions = a.max_positions;
  other.dtype = a.dtype;
  return a == other;
}

Result<std::shared_ptr<const CudaDraft>> CudaDraft::load(const DraftSource& source, DType dtype, std::int64_t context,
                                                         device::Device& device, std::mutex& recording) {
  const DraftConfig& config = source.config();
  if (config.attention_bias) return refuse("biases", "attention_bias");
  if (config.head_dim > kMaxHeadDim || config.head_dim % 8 != 0) {
    return refuse("heads that aren't a multiple of 8 and at most 256 wide", "head_dim");
  }
  std::int64_t bytes = 0;
  lay_out(config, dtype, context, nullptr, bytes);
  std::unique_ptr<device::DeviceBuffer> memory;
  Upload upload(source, dtype);
  {
    std::lock_guard lock(recording);
    LEVADA_ASSIGN_OR_RETURN(memory, device.allocate(static_cast<std::size_t>(bytes)));
    LEVADA_RETURN_IF_ERROR(upload.open(device));
  }
  const DraftTensors to = lay_out(config, dtype, context, static_cast<std::byte*>(memory->data()), bytes);
  LEVADA_RETURN_IF_ERROR(upload.fc(to.fc));
  LEVADA_RETURN_IF_ERROR(upload.vector(DraftWeight::kHiddenNorm, 0, config.hidden, to.hidden_norm));
  LEVADA_RETURN_IF_ERROR(upload.vector(DraftWeight::kNorm, 0, config.hidden, to.block.final_norm));
  LEVADA_RETURN_IF_ERROR(upload.cos_sin(to.block.cos_sin));
  for (std::int64_t l = 0; l < config.layers; ++l) LEVADA_RETURN_IF_ERROR(upload.layer(l, to));
  return std::shared_ptr<const CudaDraft>(new CudaDraft(config, std::move(memory)));
}

}  // namespace levada::model
