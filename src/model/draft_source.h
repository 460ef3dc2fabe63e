// What: DraftSource, a checked draft checkpoint as a model reads it, and DraftOpener, which opens and checks one.
// Owner: the opener is shared by a model and whoever made it; a source is its caller's and goes once it has been read.
// Thread: any; one at a time per source. Opening uses no thread pool: steps may run meanwhile.
// Invariant: what open() gave fits the target and the room and has every tensor in its shape; only abstract classes and
// plain structs cross the border to liblevada_cuda.so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "model/draft_config.h"

namespace levada::model {

enum class DraftWeight : std::uint8_t {
  kFc,          // [hidden, features]
  kHiddenNorm,  // of the context rows; EAGLE-3: of the state
  kNorm,        // before the target's head
  kInputNorm,
  kPostNorm,
  kQ,  // EAGLE-3: this and the next two [.., 2 * hidden], the token's half first
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kQNorm,
  kKNorm,
  kQBias,  // these four only with attention_bias
  kKBias,
  kVBias,
  kOBias,
  kHead,       // these three of EAGLE-3: [draft vocabulary, hidden]
  kEmbedding,  // [vocabulary, hidden], if has()
  kFcNorm,     // `layer`: the captured layer's place, if has()
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  virtual const DraftConfig& config() const = 0;
  // Whether the matrices are stored as float32; else they are bfloat16 or float16.
  virtual bool wide() const = 0;
  // Of those that a checkpoint may leave out.
  virtual bool has(DraftWeight weight) const = 0;
  // The target's id of each row of an EAGLE-3 draft's head; empty otherwise.
  virtual const std::vector<std::int32_t>& draft_ids() const = 0;
  // Rows [first, first + count) of a matrix, or elements of a vector, as `dtype` (float32, bfloat16 or float16) into host
  // memory. `layer` is ignored for the first three.
  virtual void read(DraftWeight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
                    void* out) const = 0;
  // [positions, head_dim] f32: half cosines, half sines, of the draft's own rotary angles.
  virtual void fill_cos_sin(std::int64_t positions, float* out) const = 0;
};

class DraftOpener {
 public:
  virtual ~DraftOpener() = default;
  // What Model::load_draft() says.
  virtual Result<std::unique_ptr<DraftSource>> open(const std::filesystem::path& folder) const = 0;
};

}  // namespace levada::model
