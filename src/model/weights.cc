#include "model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "model/checkpoint_source.h"
#include "nn/tensor.h"

namespace levada::model {
namespace {

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, at::ScalarType type, const nn::Backend& backend, kernels::ThreadPool& pool)
      : checkpoint_(checkpoint), type_(type), backend_(backend), pool_(pool) {}

  at::Tensor vector(Weight weight, std::int64_t layer) {
    const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
    at::Tensor host = at::empty({info.elements()}, at::TensorOptions().dtype(at::kFloat));
    files::decode_to_f32(info, 0, info.elements(), host.data_ptr<float>());
    return host.to(backend_.place(), backend_.norm_type());
  }

  nn::Projection projection(std::initializer_list<Weight> weights, std::int64_t layer) {
    if (std::all_of(weights.begin(), weights.end(), [&](Weight w) { return usable_in_place(w, layer); })) {
      nn::Projection result;
      for (Weight weight : weights) result.parts.push_back(in_place(checkpoint_.tensor(weight, layer)));
      return result;
    }
    std::int64_t rows = 0;
    for (Weight weight : weights) rows += checkpoint_.tensor(weight, layer).shape[0];
    const std::int64_t width = checkpoint_.tensor(*weights.begin(), layer).shape[1];
    const at::Tensor fused = at::empty({rows, width}, at::TensorOptions().dtype(type_).device(backend_.place()));
    std::int64_t first = 0;
    for (Weight weight : weights) {
      const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
      const at::Tensor rows = fused.narrow(0, first, info.shape[0]);
      read_rows(checkpoint_, weight, layer, 0, info.shape[0], nn::dtype_of(rows), pool_, rows.data_ptr());
      first += info.shape[0];
    }
    return {{fused}};
  }

 private:
  bool paired(Weight weight) const {
    return checkpoint_.config().paired_rows && (weight == Weight::kQ || weight == Weight::kK);
  }

  bool usable_in_place(Weight weight, std::int64_t layer) const {
    const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
    const bool same = (type_ == at::kFloat && info.encoding == files::Encoding::kF32) ||
                      (type_ == at::kBFloat16 && info.encoding == files::Encoding::kBF16);
    // Headers are written by strangers: a float at an odd address would be undefined behaviour.
    const bool aligned = reinterpret_cast<std::uintptr_t>(info.bytes.data()) % at::elementSize(type_) == 0;
    return backend_.place().is_cpu() && same && aligned && !paired(weight);
  }

  at::Tensor in_place(const files::TensorInfo& info) const {
    // Kernels only read weights; torch has no tensor of const memory.
    auto* data = const_cast<std::byte*>(info.bytes.data());
    return at::from_blob(data, info.shape, at::TensorOptions().dtype(type_));
  }

  const Checkpoint& checkpoint_;
  at::ScalarType type_;
  const nn::Backend& backend_;
  kernels::ThreadPool& pool_;
};

}  // namespace

Weights load_weights(const Checkpoint& checkpoint, at::ScalarType type, const nn::Backend& backend,
                     kernels::ThreadPool& pool) {
  Loader loader(checkpoint, type, backend, pool);
  Weights weights;
  weights.embedding = loader.projection({Weight::kEmbedding}, 0).parts.front();
  weights.final_norm = loader.vector(Weight::kFinalNorm, 0);
  weights.head = checkpoint.config().tied ? nn::Projection{{weights.embedding}} : loader.projection({Weight::kHead}, 0);
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
  }
  return weights;
}

}  // namespace levada::model
