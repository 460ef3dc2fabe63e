// What: the border between the model room, which reads checkpoints, and the CUDA decoder in liblevada_cuda.so.
// Owner: the model room makes the source and keeps it until the factory has returned.
// Thread: the caller's.
// Invariant: module and binary come from the same build; only abstract classes and plain structs cross the border.
#pragma once

#include "device/device.h"
#include "model/checkpoint.h"
#include "model/draft_source.h"
#include "model/model.h"

namespace levada::model {

// A checked checkpoint as the CUDA decoder reads it.
class DecoderSource {
 public:
  virtual ~DecoderSource() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const core::ModelInfo& info() const = 0;
  // Rows [first, first + count) of a matrix, or elements of a vector, in model order (rotary halves apart), as `dtype`
  // (float32, bfloat16 or float16) into host memory.
  virtual void read(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
                    void* out) = 0;
  // Whether a matrix is stored as float8_e4m3 with block scales; read() multiplies them in, read_f8() gives the numbers
  // as stored and scales() what they are multiplied by: [rows / 128, columns / 128], rounded up. The latter two are
  // asked only about such matrices.
  virtual bool is_f8(Weight, std::int64_t) const { return false; }
  virtual void read_f8(Weight, std::int64_t, std::int64_t, std::int64_t, void*) {}
  virtual std::vector<float> scales(Weight, std::int64_t) { return {}; }
  // Of each layer, for a float8 KV cache; empty: there are none.
  virtual std::vector<LayerKvScales> kv_scales() const { return {}; }
  // [context, head_dim] f32: half cosines, half sines.
  virtual void fill_cos_sin(float* out) = 0;
};

struct CudaModelOptions {
  DType dtype = DType::kBF16;   // weights that aren't float8, activations, KV planes
  bool f8_kv = false;           // KV planes are float8_e4m3 instead, with the source's scales if it has some
  bool f8_page_scales = false;  // with scales of each page instead
  std::int32_t page_size_tokens = 16;
  std::string warmup_folder;          // of the warm-up manifest; empty: nothing is measured at the start
  std::int32_t max_graph_rows = 512;  // decode steps of up to so many rows run as recorded graphs; 0: none do
  // Steps of 2 to so many rows for every request, all of them sampled (drafts being verified): recorded as graphs of
  // their own when they first come, where contexts are long. At most 8; 0: they run as decode rows.
  std::int32_t max_verify_rows = 8;
  std::optional<DraftRoom> draft_room;        // of ModelOptions
  std::shared_ptr<const DraftOpener> drafts;  // Model::load_draft()'s checks and tensors
};

// Through liblevada_cuda.so; kUnavailable without it.
Result<std::unique_ptr<Model>> make_cuda_model(DecoderSource& source, const CudaModelOptions& options,
                                               device::Device& device);

inline constexpr const char* kMakeCudaModel = "levada_make_cuda_model";
// Writes a Model on `device`, or why there is none, into `result`.
using MakeCudaModel = void(DecoderSource& source, const CudaModelOptions& options, device::Device& device,
                           Result<std::unique_ptr<Model>>* result);

}  // namespace levada::model
