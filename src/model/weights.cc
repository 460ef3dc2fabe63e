#include "model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <optional>

#include "kernels/weight_arena.h"
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

// The types that the kernels compute with as they are.
std::optional<at::ScalarType> plain_type(files::Encoding encoding) {
  switch (encoding) {
    case files::Encoding::kF32: return at::kFloat;
    case files::Encoding::kBF16: return at::kBFloat16;
    case files::Encoding::kF16: return at::kHalf;
    default: return std::nullopt;
  }
}

void add_once(const std::string& name, const std::string& separator, std::string& list) {
  if (list.find(name) == std::string::npos) list += (list.empty() ? "" : separator) + name;
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

  // Neighbours of one form become one matrix, but for those used where the file has them.
  nn::Projection projection(const std::vector<Weight>& weights, std::int64_t layer) {
    nn::Projection result;
    for (auto first = weights.begin(); first != weights.end();) {
      const Form form = form_of(*first, layer);
      const auto last = form.in_place
                            ? first + 1
                            : std::find_if(first, weights.end(), [&](Weight w) { return form_of(w, layer) != form; });
      const std::vector<Weight> alike(first, last);
      if (form.in_place) {
        result.parts.emplace_back(in_place(checkpoint_.tensor(*first, layer), form.type));
      } else if (form.quantised.has_value()) {
        result.parts.emplace_back(quantised(alike, layer, *form.quantised));
      } else {
        result.parts.emplace_back(copied(alike, layer, form.type));
      }
      first = last;
    }
    return result;
  }

  // What changed its type on the way, each pair once: "F8_E4M3 to bfloat16, F16 to bfloat16".
  const std::string& converted() const { return converted_; }

 private:
  // How a weight is computed with: in its own blocks, else as numbers of `type`.
  struct Form {
    std::optional<kernels::QuantFormat> quantised;
    at::ScalarType type;
    bool in_place;
    bool operator==(const Form&) const = default;
  };

  Form form_of(Weight weight, std::int64_t layer) const {
    const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
    const std::optional<at::ScalarType> stored = plain_type(info.encoding);
    Form form{std::nullopt, as_stored_ ? stored.value_or(type_) : type_, false};
    if (as_stored_) form.quantised = quant_format(info.encoding);
    // Headers are written by strangers: a number at an odd address would be undefined behaviour.
    const bool aligned = reinterpret_cast<std::uintptr_t>(info.bytes.data()) % at::elementSize(form.type) == 0;
    form.in_place = stored == form.type && aligned && backend_.place().is_cpu() && !paired(weight);
    return form;
  }

  at::Tensor copied(const std::vector<Weight>& weights, std::int64_t layer, at::ScalarType type) {
    const std::int64_t width = checkpoint_.tensor(weights.front(), layer).shape[1];
    const at::Tensor fused = empty(rows_of(weights, layer), width, type);
    std::int64_t first = 0;
    for (Weight weight : weights) {
      const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
      const at::Tensor rows = fused.narrow(0, first, info.shape[0]);
      const DType to = nn::dtype_of(rows);
      if (plain_type(info.encoding) != type)
        add_once(std::string(to_string(info.encoding)) + " to " + std::string(to_string(to)), ", ", converted_);
      read_rows(checkpoint_, weight, layer, 0, info.shape[0], to, pool_, rows.data_ptr());
      first += info.shape[0];
    }
    return fused;
  }

  std::shared_ptr<const kernels::QuantMatrix> quantised(const std::vector<Weight>& weights, std::int64_t layer,
                                                        kernels::QuantFormat format) {
    auto matrix = std::make_shared<kernels::QuantMatrix>(format, rows_of(weights, layer),
                                                         checkpoint_.tensor(weights.front(), layer).shape[1], arena_);
    std::int64_t row = 0;
    for (Weight weight : weights) {
      copy_stored_rows(checkpoint_, weight, layer, row, pool_, *matrix);
      row += checkpoint_.tensor(weight, layer).shape[0];
    }
    return matrix;
  }

  at::Tensor empty(std::int64_t rows, std::int64_t width, at::ScalarType type) {
    const auto options = at::TensorOptions().dtype(type).device(backend_.place());
    if (!backend_.place().is_cpu()) return at::empty({rows, width}, options);
    const auto memory = arena_.take(static_cast<std::size_t>(rows * width) * at::elementSize(type));
    return at::from_blob(
        memory.get(), {rows, width}, [memory](void*) {}, options);
  }

  std::int64_t rows_of(const std::vector<Weight>& weights, std::int64_t layer) const {
    std::int64_t rows = 0;
    for (Weight weight : weights) rows += checkpoint_.tensor(weight, layer).shape[0];
    return rows;
  }

  bool paired(Weight weight) const {
    return checkpoint_.config().paired_rows && (weight == Weight::kQ || weight == Weight::kK);
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
  kernels::WeightArena arena_;
  std::string converted_;
};

// Adds a matrix to the account.
void count(const at::Tensor& matrix, Weights& weights) {
  weights.bytes += static_cast<std::int64_t>(matrix.nbytes());
  if (matrix.scalar_type() == at::kHalf) add_once(std::string(to_string(files::Encoding::kF16)), " ", weights.stored);
}
void count(const std::shared_ptr<const kernels::QuantMatrix>& matrix, Weights& weights) {
  weights.bytes += matrix->bytes();
  add_once(std::string(to_string(matrix->format())), " ", weights.stored);
}
void count(const nn::Projection& projection, Weights& weights) {
  for (const nn::Matrix& part : projection.parts) std::visit([&](const auto& m) { count(m, weights); }, part);
}

}  // namespace

bool has_stored_forms(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.source().tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const files::TensorInfo& info) {
    return quant_format(info.encoding).has_value() ||
           (info.encoding == files::Encoding::kF16 && info.shape.size() == 2);
  });
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
  weights.converted = loader.converted();
  return weights;
}

}  // namespace levada::model
