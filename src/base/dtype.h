// What: the element types that cross room borders: file formats, tensors, KV planes.
// Owner: none.
// Thread: any.
// Invariant: only types whose elements have a whole number of bytes; block-quantised GGUF types live in files/gguf.h.
// Names are the ones in safetensors headers, lower case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace levada {

enum class DType : std::uint8_t { kF32, kF16, kBF16, kF8E4M3, kI64, kI32, kU8, kF64, kI16, kI8, kBool };

constexpr std::size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kI16:
    case DType::kBF16: return 2;
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kBool:
    case DType::kU8: return 1;
  }
  return 0;
}

constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kF16: return "float16";
    case DType::kBF16: return "bfloat16";
    case DType::kF8E4M3: return "float8_e4m3";
    case DType::kI64: return "int64";
    case DType::kI32: return "int32";
    case DType::kU8: return "uint8";
    case DType::kF64: return "float64";
    case DType::kI16: return "int16";
    case DType::kI8: return "int8";
    case DType::kBool: return "bool";
  }
  return "?";
}

// The inverse of to_string; nullopt for any other name.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI64, DType::kI32, DType::kU8,
                      DType::kF64, DType::kI16, DType::kI8, DType::kBool}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace levada
