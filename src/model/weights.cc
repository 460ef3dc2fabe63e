#include "model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <optional>

#include "model/checkpoint_source.h"
#include "nn/tensor.h"

namespace levada::model {
namespace {

std::optional<kernels::QuantFormat> quant_format(files::Encoding encoding) {
  switch (encoding) {
    case files::Encoding::kQ8_0: return kernels::QuantFormat::kQ8_0;
    case files::Encoding::kQ4_0: return kernels::QuantFormat::kQ4_0;
    case files::Encoding::kQ4_1: return kernels::QuantFormat::kQ4_1;
    case files::Encoding::kQ4_K: return kernels::QuantFormat::kQ4_K;
    case files::Encoding::kQ6_K: return kernels::QuantFormat::kQ6_K;
    default: return std::nullopt;
  }
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, at::ScalarType type, bool as_stored, const nn::Backend& backend,
         kernels::ThreadPool& pool)
      : checkpoint_(checkpoint), type_(type), as_stored_(as_stored), backend_(backend), pool_(pool) {}

  at::Tensor vector(Weight weight, std::int64_t layer) {
    const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
    at::Tensor host = at::empty({info.elements()}, at::TensorOptions().dtype(at::kFloat));
    files::decode_to_f32(info, 0, info.elements(), host.data_ptr<float>());
    return host.to(backend_.place(), backend_.norm_type());
  }

  nn::Projection projection(const std::vector<Weight>& weights, std::int64_t layer) {
    const auto all = [&](auto holds) {
      return std::all_of(weights.begin(), weights.end(),
                         [&](Weight w) { return holds(checkpoint_.tensor(w, layer), w); });
    };
    if (as_stored_ &&
        all([](const files::TensorInfo& info, Weight) { return quant_format(info.encoding).has_value(); })) {
      return quantised(weights, layer);
    }
    const at::ScalarType type = type_for(weights, layer);
    if (all([&](const files::TensorInfo& info, Weight w) { return usable_in_place(info, w, type); })) {
      nn::Projection result;
      for (Weight weight : weights) result.parts.push_back(in_place(checkpoint_.tensor(weight, layer), type));
      return result;
    }
    return converted(weights, layer, type);
  }

 private:
  // As stored: float32 where all are; else `type_`.
  at::ScalarType type_for(const std::vector<Weight>& weights, std::int64_t layer) const {
    if (!as_stored_) return type_;
    const auto is = [&](files::Encoding encoding) {
      return std::all_of(weights.begin(), weights.end(),
                         [&](Weight w) { return checkpoint_.tensor(w, layer).encoding == encoding; });
    };
    return is(files::Encoding::kF32) ? at::kFloat : is(files::Encoding::kBF16) ? at::kBFloat16 : type_;
  }

  nn::Projection converted(const std::vector<Weight>& weights, std::int64_t layer, at::ScalarType type) {
    const std::int64_t width = checkpoint_.tensor(weights.front(), layer).shape[1];
    const at::Tensor fused =
        at::empty({rows_of(weights, layer), width}, at::TensorOptions().dtype(type).device(backend_.place()));
    std::int64_t first = 0;
    for (Weight weight : weights) {
      const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
      const at::Tensor rows = fused.narrow(0, first, info.shape[0]);
      read_rows(checkpoint_, weight, layer, 0, info.shape[0], nn::dtype_of(rows), pool_, rows.data_ptr());
      first += info.shape[0];
    }
    return {{fused}};
  }

  // Neighbours of one form become one matrix.
  nn::Projection quantised(const std::vector<Weight>& weights, std::int64_t layer) {
    const auto encoding = [&](Weight w) { return checkpoint_.tensor(w, layer).encoding; };
    nn::Projection result;
    for (auto first = weights.begin(); first != weights.end();) {
      const auto last = std::find_if(first, weights.end(), [&](Weight w) { return encoding(w) != encoding(*first); });
      const std::vector<Weight> alike(first, last);
      auto matrix = std::make_shared<kernels::QuantMatrix>(*quant_format(encoding(*first)), rows_of(alike, layer),
                                                           checkpoint_.tensor(*first, layer).shape[1]);
      std::int64_t row = 0;
      for (Weight weight : alike) {
        copy_stored_rows(checkpoint_, weight, layer, row, pool_, *matrix);
        row += checkpoint_.tensor(weight, layer).shape[0];
      }
      result.quantised.push_back(std::move(matrix));
      first = last;
    }
    return result;
  }

  std::int64_t rows_of(const std::vector<Weight>& weights, std::int64_t layer) const {
    std::int64_t rows = 0;
    for (Weight weight : weights) rows += checkpoint_.tensor(weight, layer).shape[0];
    return rows;
  }

  bool paired(Weight weight) const {
    return checkpoint_.config().paired_rows && (weight == Weight::kQ || weight == Weight::kK);
  }

  bool usable_in_place(const files::TensorInfo& info, Weight weight, at::ScalarType type) const {
    const bool same = (type == at::kFloat && info.encoding == files::Encoding::kF32) ||
                      (type == at::kBFloat16 && info.encoding == files::Encoding::kBF16);
    // Headers are written by strangers: a float at an odd address would be undefined behaviour.
    const bool aligned = reinterpret_cast<std::uintptr_t>(info.bytes.data()) % at::elementSize(type) == 0;
    return backend_.place().is_cpu() && same && aligned && !paired(weight);
  }

  static at::Tensor in_place(const files::TensorInfo& info, at::ScalarType type) {
    // Kernels only read weights; torch has no tensor of const memory.
    auto* data = const_cast<std::byte*>(info.bytes.data());
    return at::from_blob(data, info.shape, at::TensorOptions().dtype(type));
  }

  const Checkpoint& checkpoint_;
  at::ScalarType type_;
  bool as_stored_;
  const nn::Backend& backend_;
  kernels::ThreadPool& pool_;
};

// Adds a map's matrices to the account.
void count(const nn::Projection& projection, Weights& weights) {
  for (const at::Tensor& part : projection.parts) weights.bytes += static_cast<std::int64_t>(part.nbytes());
  for (const auto& matrix : projection.quantised) {
    weights.bytes += matrix->bytes();
    const std::string name(to_string(matrix->format()));
    if (weights.quantised.find(name) == std::string::npos)
      weights.quantised += (weights.quantised.empty() ? "" : " ") + name;
  }
}

}  // namespace

bool has_quantised(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.source().tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const files::TensorInfo& info) { return quant_format(info.encoding).has_value(); });
}

Weights load_weights(const Checkpoint& checkpoint, at::ScalarType type, bool as_stored, const nn::Backend& backend,
                     kernels::ThreadPool& pool) {
  Loader loader(checkpoint, type, as_stored, backend, pool);
  Weights weights;
  weights.embedding = loader.projection({Weight::kEmbedding}, 0);
  weights.final_norm = loader.vector(Weight::kFinalNorm, 0);
  weights.head = checkpoint.config().tied ? weights.embedding : loader.projection({Weight::kHead}, 0);
  count(weights.embedding, weights);
  if (!checkpoint.config().tied) count(weights.head, weights);
  for (std::int64_t l = 0; l < checkpoint.config().layers; ++l) {
    nn::GqaLayer& layer = weights.layers.emplace_back();
    layer.input_norm = loader.vector(Weight::kInputNorm, l);
    layer.post_norm = loader.vector(Weight::kPostNorm, l);
    if (checkpoint.config().qk_norm) {
      layer.q_norm = loader.vector(Weight::kQNorm, l);
      layer.k_norm = loader.vector(Weight::kKNorm, l);
    }
    layer.qkv = loader.projection({Weight::kQ, Weight::kK, Weight::kV}, l);
    layer.o = loader.projection({Weight::kO}, l);
    layer.gate_up = loader.projection({Weight::kGate, Weight::kUp}, l);
    layer.down = loader.projection({Weight::kDown}, l);
    for (const nn::Projection* map : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) count(*map, weights);
  }
  return weights;
}

}  // namespace levada::model
