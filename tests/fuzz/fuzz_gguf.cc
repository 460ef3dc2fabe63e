// libFuzzer entry: a GGUF file from arbitrary bytes. docs/formats/gguf.md says how to run.
#include <cstdint>
#include <vector>

#include "files/gguf_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto contents = levada::files::parse_gguf(bytes, "fuzz");
  if (!contents.ok()) return 0;
  std::vector<float> values;
  for (const levada::files::TensorInfo& tensor : contents->tensors) {
    values.resize(static_cast<std::size_t>(tensor.elements()));
    levada::files::decode_to_f32(tensor, 0, tensor.elements(), values.data());
  }
  return 0;
}
