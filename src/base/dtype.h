// What: the element types that cross room borders: file formats, tensors, KV planes.
// Owner: none.
// Thread: any.
// Invariant: only types whose elements have a whole number of bytes; block-quantised GGUF types live in files/gguf.h.
// Names are the ones in safetensors headers, lower case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace levada {

enum class DType : std::uint8_t { kF32, kF16, kBF16, kF8E4M3, kI64, kI32, kU8 };

constexpr std::size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kF8E4M3:
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
  }
  return "?";
}

}  // namespace levada
