// What: GgufFile, a GGUF v2/v3 container: typed metadata and tensors.
// Owner: owns its mapping.
// Thread: immutable after open.
// Invariant: see tensor_source.h; metadata counts and string lengths are bounded by the bytes that are left in the
// file, array nesting is refused, duplicate keys and tensor names are refused, alignment is a power of two.
// Format: little endian; docs/formats/gguf.md says which parts we read.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "files/tensor_source.h"

namespace levada::files {

class GgufFile : public TensorSource {
 public:
  static Result<std::unique_ptr<GgufFile>> open(const std::filesystem::path& file);

  // Typed look-ups; nullopt when absent or of another kind. Integers of any width are widened.
  virtual std::optional<std::int64_t> integer(std::string_view key) const = 0;
  virtual std::optional<double> number(std::string_view key) const = 0;  // floats and integers
  virtual std::optional<bool> boolean(std::string_view key) const = 0;
  virtual std::optional<std::string_view> string(std::string_view key) const = 0;
  virtual const std::vector<std::string_view>* strings(std::string_view key) const = 0;
  virtual std::optional<std::vector<std::int64_t>> integers(std::string_view key) const = 0;
  virtual std::vector<std::string> keys() const = 0;
};

}  // namespace levada::files
