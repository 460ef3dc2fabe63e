#include "train/frozen_tables.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/hash.h"
#include "base/hex.h"
#include "model/checkpoint.h"
#include "nn/tensor.h"
#include "train/frozen_tensors.h"

namespace levada::train {
namespace {

std::uint64_t hash_of(const at::Tensor& tensor, std::uint64_t seed) {
  return hash64({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}, seed);
}

// A few rows at a time: the table is never held in two forms.
at::Tensor read_table(const model::Checkpoint& checkpoint, model::Weight weight, at::ScalarType type) {
  const files::TensorInfo& info = checkpoint.tensor(weight);
  const std::int64_t rows = info.shape[0], width = info.shape[1];
  const at::Tensor table = at::empty({rows, width}, at::TensorOptions().dtype(type));
  std::vector<float> row(static_cast<std::size_t>(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    files::decode_to_f32(info, r * width, width, row.data());
    if (type == at::kFloat) {
      std::memcpy(table.data_ptr<float>() + r * width, row.data(), row.size() * sizeof(float));
    } else {
      std::copy(row.begin(), row.end(), table.data_ptr<at::BFloat16>() + r * width);
    }
  }
  checkpoint.source().drop_resident(info);
  return table;
}

template <class T>
double sum_of_squares(const at::Tensor& table) {
  const T* values = table.data_ptr<T>();
  double sum = 0;
  for (std::int64_t i = 0; i < table.numel(); ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

FrozenTensors::FrozenTensors(at::Tensor embedding_table, at::Tensor head_table, std::int64_t target_layers)
    : embedding(std::move(embedding_table)), head(std::move(head_table)), target_layers_(target_layers) {
  const std::uint64_t hash = hash_of(head, hash_of(embedding, 0));
  identity_ = hex64(hash) + "-" + std::string(to_string(nn::dtype_of(embedding)));
}

double FrozenTensors::head_row_length() const {
  const double sum =
      head.scalar_type() == at::kFloat ? sum_of_squares<float>(head) : sum_of_squares<at::BFloat16>(head);
  return std::sqrt(sum / static_cast<double>(head.size(0)));
}

Result<std::shared_ptr<const FrozenTables>> load_frozen_tables(const std::filesystem::path& path,
                                                               const std::string& dtype) {
  if (dtype != "float32" && dtype != "bfloat16") {
    return invalid_argument("\"" + dtype + "\" is not supported; float32 and bfloat16 are", "torch_dtype");
  }
  LEVADA_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::open(path));
  const at::ScalarType type = dtype == "float32" ? at::kFloat : at::kBFloat16;
  std::shared_ptr<const FrozenTables> tables;
  LEVADA_RETURN_IF_ERROR(nn::guarded("loading the target's tables", [&] {
    const at::Tensor embedding = read_table(checkpoint, model::Weight::kEmbedding, type);
    const at::Tensor head = checkpoint.config().tied ? embedding : read_table(checkpoint, model::Weight::kHead, type);
    tables = std::make_shared<FrozenTensors>(embedding, head, checkpoint.config().layers);
  }));
  return tables;
}

std::shared_ptr<const FrozenTables> random_frozen_tables(std::int64_t vocabulary, std::int64_t hidden,
                                                         std::int64_t target_layers, const std::string& dtype) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-0.1f, 0.1f);
  at::Tensor table = at::empty({vocabulary, hidden}, at::TensorOptions().dtype(at::kFloat));
  for (std::int64_t i = 0; i < table.numel(); ++i) table.data_ptr<float>()[i] = value(random);
  if (dtype != "float32") table = table.to(at::kBFloat16);
  return std::make_shared<FrozenTensors>(table, table, target_layers);
}

}  // namespace levada::train
