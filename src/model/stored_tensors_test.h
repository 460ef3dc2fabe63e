// What: StoredTensor and write_safetensors(): a checkpoint taken apart, so that tests can make or break one.
// Owner: the test.
// Thread: one.
// Invariant: tensors are written as told, right or wrong, one behind the other in the order of their names.
// Test code only. Format: safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace levada::model {

struct StoredTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline void write_safetensors(const std::filesystem::path& file, const std::map<std::string, StoredTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t header_bytes = text.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_bytes), 8);
  out << text << data;
}

}  // namespace levada::model
