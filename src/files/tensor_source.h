// What: TensorSource, named tensors of a checkpoint, mapped and checked, whatever the file format.
// Owner: the returned object owns its mappings; every TensorInfo::bytes points into them and dies with it.
// Thread: immutable after open.
// Invariant: no length, offset or shape in a file is trusted: each tensor's bytes lie inside the mapping and their count
// equals what shape and encoding demand, checked at open with overflow-safe arithmetic. Failures are kDataLoss naming
// file, tensor and both numbers.
// Shapes are in PyTorch order (outermost first), also for GGUF, which stores them reversed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace levada::files {

// How a tensor's elements are stored. Quantised forms are ggml's blocks along the last dimension.
enum class Encoding : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K, kI64, kI32, kU8, kF8E4M3 };

std::string_view to_string(Encoding encoding);
// Elements per block and bytes per block; (1, element size) for plain types.
std::int64_t block_elements(Encoding encoding);
std::int64_t block_bytes(Encoding encoding);

struct TensorInfo {
  std::string name;
  Encoding encoding{};
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::int64_t elements() const;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // nullptr if there is none.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Tells the kernel that these pages were consumed and needn't stay resident.
  virtual void drop_resident(const TensorInfo& tensor) const = 0;
};

// One file.
Result<std::unique_ptr<TensorSource>> open_safetensors(const std::filesystem::path& file);
// A Hugging Face folder: model.safetensors, or all shards named by model.safetensors.index.json.
Result<std::unique_ptr<TensorSource>> open_safetensors_folder(const std::filesystem::path& folder);

// Decodes `count` elements starting at element `first` to float32.
// REQUIRES: both are multiples of block_elements(tensor.encoding) and lie inside the tensor.
// Formulas: ggml's block layouts (MIT), docs/formats/gguf.md.
void decode_to_f32(const TensorInfo& tensor, std::int64_t first, std::int64_t count, float* out);

}  // namespace levada::files
