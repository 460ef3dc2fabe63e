// What: TensorTable, the tensors of one source with look-up by name.
// Owner: the TensorSource that holds it; TensorInfo::bytes point into that source's mappings. Private to the room.
// Thread: immutable after build; moving keeps the addresses of its TensorInfos.
// Invariant: names are unique. Tensors of one file don't share bytes (check_disjoint).
// The order is the file's own.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files/tensor_source.h"

namespace levada::files {

class TensorTable {
 public:
  // kDataLoss naming `file` if two tensors share a name.
  static Result<TensorTable> build(std::vector<TensorInfo> tensors, const std::string& file);

  const TensorInfo* find(std::string_view name) const;
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys are views of tensors_' names
};

// kDataLoss naming two tensors and their byte ranges within `section` if any share a byte.
Status check_disjoint(const std::vector<TensorInfo>& tensors, std::span<const std::byte> section,
                      const std::string& file);

}  // namespace levada::files
