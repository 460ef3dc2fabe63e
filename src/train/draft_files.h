// What: a draft's tensors to and from safetensors files: the exported weights and the optimizer's state.
// Owner: none. Private to the room.
// Thread: the trainer's.
// Invariant: a file is read only if its tensors are exactly those expected, in name, shape and type; nothing is loaded
// from a file that fails.
// Format: docs/formats/checkpoint.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "train/draft_state.h"

namespace levada::train {

// A flat buffer and what its slices are called: prefix + slice name.
struct NamedFlat {
  std::string prefix;
  at::Tensor flat;
};

// A safetensors file that is about to be written: header, then buffers as they lie in host memory.
class DraftImage {
 public:
  DraftImage(const std::vector<nn::NamedSlice>& slices, const std::vector<NamedFlat>& parts);
  // Valid as long as the image.
  std::vector<std::string_view> pieces() const;

 private:
  std::string header_;
  std::vector<at::Tensor> host_;
};

// Hash of a buffer's bytes, as a checkpoint records it.
std::string checksum(const at::Tensor& flat);

// Reads exactly `parts` from `file` into their buffers. `widen`: any float type is accepted and converted; else the type
// must be the buffer's. kDataLoss naming the tensor.
Status read_draft_safetensors(const std::filesystem::path& file, const std::vector<nn::NamedSlice>& slices,
                              const std::vector<NamedFlat>& parts, bool widen);

}  // namespace levada::train
