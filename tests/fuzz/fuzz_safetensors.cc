// libFuzzer entry: a safetensors file and a shard index from arbitrary bytes. docs/formats/safetensors.md says how to run.
#include <cstdint>
#include <vector>

#include "files/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto tensors = levada::files::parse_safetensors(bytes, "fuzz");
  if (tensors.ok()) {
    std::vector<float> values;
    for (const levada::files::TensorInfo& tensor : *tensors) {
      values.resize(static_cast<std::size_t>(tensor.elements()));
      levada::files::decode_to_f32(tensor, 0, tensor.elements(), values.data());
    }
  }
  // Either outcome is fine: what matters is that there is one.
  static_cast<void>(levada::files::parse_shard_index(bytes, "fuzz").ok());
  return 0;
}
