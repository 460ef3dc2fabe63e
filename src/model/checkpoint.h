// What: Checkpoint, an opened model file or folder whose every tensor has been checked against its configuration.
// Owner: owns the mappings; weights used in place keep it alive.
// Thread: immutable after open.
// Invariant: each tensor the model needs is there with the demanded shape and a float encoding, and no other is, apart
// from those known to be redundant (rotary tables, a head that is tied).
#pragma once

#include <memory>

#include "files/tensor_source.h"
#include "model/config.h"
#include "model/kv_scales.h"

namespace levada::model {

enum class Weight : std::uint8_t {
  kEmbedding,
  kFinalNorm,
  kHead,
  kInputNorm,
  kPostNorm,
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kQNorm,
  kKNorm,
};

inline constexpr std::int64_t kScaleBlock = 128;

class Checkpoint {
 public:
  // `path`: a GGUF file or a Hugging Face folder.
  static Result<Checkpoint> open(const std::filesystem::path& path);
  // Checks `source` against `config`; kDataLoss naming the tensor, what was expected and what was found.
  static Result<Checkpoint> make(std::unique_ptr<files::TensorSource> source, ModelConfig config, std::string file,
                                 bool gguf);

  const ModelConfig& config() const { return config_; }
  const files::TensorSource& source() const { return *source_; }
  // `layer` is ignored for the first three. REQUIRES: the configuration has that weight.
  const files::TensorInfo& tensor(Weight weight, std::int64_t layer = 0) const;
  // The scales of a weight's 128 x 128 blocks, [rows / 128, columns / 128] rounded up; null unless it is float8_e4m3. What
  // an element means is its number times its block's scale.
  const files::TensorInfo* block_scales(Weight weight, std::int64_t layer = 0) const;
  // Of each layer, for a float8 KV cache; empty if the checkpoint has none.
  const std::vector<LayerKvScales>& kv_scales() const { return kv_scales_.layers; }
  // Elements of all weights.
  std::int64_t parameters() const;
  // Of all tensors as the file has them.
  std::int64_t source_bytes() const;
  // Hash over names, shapes, encodings and sampled bytes of every tensor (law 8).
  std::string identity() const;

 private:
  Checkpoint() = default;
  std::string name(Weight weight, std::int64_t layer) const;
  std::vector<std::int64_t> shape(Weight weight) const;
  bool needs(Weight weight) const;
  bool redundant(const std::string& name) const;
  template <class Visit>
  void for_each_weight(Visit visit) const;
  Status check_tensors() const;
  Status check_one(Weight weight, std::int64_t layer) const;
  Status check_scales(Weight weight, std::int64_t layer) const;

  std::unique_ptr<files::TensorSource> source_;
  ModelConfig config_;
  StoredKvScales kv_scales_;
  std::string file_;
  bool gguf_ = false;
};

}  // namespace levada::model
