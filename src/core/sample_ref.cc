#include "core/sample_ref.h"

#include "base/check.h"

namespace levada::core {

namespace {

bool is_plain(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == ':' || c == '-';
}

void append_encoded(std::string& key, std::string_view component) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  LEVADA_CHECK(!component.empty(), "no component of a key is empty");
  for (char c : component) {
    if (is_plain(c)) {
      key.push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      key.push_back('%');
      key.push_back(kHex[byte >> 4]);
      key.push_back(kHex[byte & 15]);
    }
  }
}

}  // namespace

std::uint64_t StoredTensor::bytes() const {
  std::uint64_t elements = 1;
  for (std::int64_t dimension : shape) elements *= static_cast<std::uint64_t>(dimension);
  return elements * bytes_of(dtype);
}

std::uint64_t SampleRef::bytes() const {
  std::uint64_t total = 0;
  for (const StoredTensor& tensor : tensors) total += tensor.bytes();
  return total;
}

std::string object_key(std::string_view store_id, std::string_view sample_id, std::uint32_t generation,
                       std::string_view name) {
  std::string key;
  append_encoded(key, store_id);
  key.push_back('/');
  append_encoded(key, sample_id);
  key += "/g" + std::to_string(generation) + "/";
  append_encoded(key, name);
  return key;
}

std::string keys_of_run(std::string_view store_id, std::string_view run_id) {
  std::string keys;
  append_encoded(keys, store_id);
  keys.push_back('/');
  append_encoded(keys, run_id);
  keys.push_back(':');
  return keys;
}

}  // namespace levada::core
