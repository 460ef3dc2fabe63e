#include "files/safetensors_header.h"

#include <simdjson.h>

#include <array>
#include <cstring>
#include <optional>

#include "files/layout.h"
#include "files/tensor_table.h"

namespace levada::files {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

std::optional<Encoding> encoding_of(std::string_view dtype) {
  // The types a model of ours can use; everything else is refused rather than carried along unread.
  constexpr std::array kEncodings = {Encoding::kF32, Encoding::kF16, Encoding::kBF16,  Encoding::kI64,
                                     Encoding::kI32, Encoding::kU8,  Encoding::kF8E4M3};
  for (const Encoding encoding : kEncodings) {
    if (to_string(encoding) == dtype) return encoding;
  }
  if (dtype == "BOOL") return Encoding::kU8;  // a byte each, 0 or 1
  return std::nullopt;
}

// `parser` owns what the object refers to.
Result<object> parse_object(simdjson::dom::parser& parser, std::string_view text, const std::string& file) {
  if (text.empty()) return data_loss(file + ": JSON header is empty");
  element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root))
    return data_loss(file + ": JSON header is damaged: " + simdjson::error_message(error));
  object entries;
  if (root.get(entries)) return data_loss(file + ": JSON header must be an object");
  return entries;
}

Result<std::vector<std::int64_t>> integers_of(const object& entry, const char* field, const std::string& where) {
  array values;
  if (entry[field].get(values)) return data_loss(where + ": '" + field + "' must be an array of integers");
  std::vector<std::int64_t> integers;
  for (const element value : values) {
    std::int64_t integer = 0;
    if (value.get(integer) || integer < 0)
      return data_loss(where + ": '" + field + "' must hold integers from 0 to 2^63-1, entry " +
                       std::to_string(integers.size()) + " doesn't");
    integers.push_back(integer);
  }
  return integers;
}

Result<TensorInfo> parse_tensor(std::string_view name, const element& value, std::span<const std::byte> data,
                                const std::string& file) {
  const std::string where = file + ": tensor " + in_quotes(name);
  object entry;
  if (value.get(entry)) return data_loss(where + ": must be an object");
  std::string_view dtype;
  if (entry["dtype"].get(dtype)) return data_loss(where + ": 'dtype' must be a string");
  const std::optional<Encoding> encoding = encoding_of(dtype);
  if (!encoding) return data_loss(where + ": dtype " + in_quotes(dtype) + " is not supported");

  TensorInfo tensor{.name = std::string(name), .encoding = *encoding};
  LEVADA_ASSIGN_OR_RETURN(tensor.shape, integers_of(entry, "shape", where));
  LEVADA_ASSIGN_OR_RETURN(const std::vector<std::int64_t> offsets, integers_of(entry, "data_offsets", where));
  if (offsets.size() != 2)
    return data_loss(where + ": 'data_offsets' must hold 2 numbers, got " + std::to_string(offsets.size()));
  const auto size = static_cast<std::int64_t>(data.size());
  if (offsets[0] > offsets[1] || offsets[1] > size)
    return data_loss(where + ": bytes " + std::to_string(offsets[0]) + " to " + std::to_string(offsets[1]) +
                     " lie outside the data section of " + std::to_string(size) + " bytes");
  LEVADA_ASSIGN_OR_RETURN(const std::int64_t expected, expected_bytes(*encoding, tensor.shape, where));
  if (offsets[1] - offsets[0] != expected)
    return data_loss(where + ": shape " + to_string(tensor.shape) + " of " + std::string(dtype) + " takes " +
                     std::to_string(expected) + " bytes, the header gives " + std::to_string(offsets[1] - offsets[0]));
  tensor.bytes = data.subspan(static_cast<std::size_t>(offsets[0]), static_cast<std::size_t>(expected));
  return tensor;
}

// Where the header's JSON ends and the data section begins.
Result<std::size_t> header_end(std::span<const std::byte> bytes, const std::string& file) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length)
    return data_loss(file + ": " + std::to_string(bytes.size()) +
                     " bytes are too few for a safetensors file, it needs 8");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeaderBytes)
    return data_loss(file + ": header length " + std::to_string(length) + " exceeds the limit of " +
                     std::to_string(kMaxHeaderBytes) + " bytes");
  if (length > bytes.size() - sizeof length)
    return data_loss(file + ": header length " + std::to_string(length) + " exceeds the " +
                     std::to_string(bytes.size() - sizeof length) + " bytes left in the file");
  return sizeof length + static_cast<std::size_t>(length);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos &&
         name.find("..") == name.npos;
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  LEVADA_ASSIGN_OR_RETURN(const std::size_t data_begin, header_end(bytes, file));
  const std::span<const std::byte> data = bytes.subspan(data_begin);
  simdjson::dom::parser parser;
  const std::string_view text = as_text(bytes.first(data_begin)).substr(sizeof(std::uint64_t));
  LEVADA_ASSIGN_OR_RETURN(const object entries, parse_object(parser, text, file));

  std::vector<TensorInfo> tensors;
  std::size_t covered = 0;
  for (const auto [name, value] : entries) {
    if (name == "__metadata__") continue;
    LEVADA_ASSIGN_OR_RETURN(TensorInfo tensor, parse_tensor(name, value, data, file));
    covered += tensor.bytes.size();  // at most data.size() per entry, and an entry takes header bytes: no overflow
    tensors.push_back(std::move(tensor));
  }
  LEVADA_RETURN_IF_ERROR(check_disjoint(tensors, data, file));
  if (covered != data.size())
    return data_loss(file + ": tensors cover " + std::to_string(covered) + " bytes of the data section's " +
                     std::to_string(data.size()));
  return tensors;
}

Result<std::map<std::string, std::string>> parse_shard_index(std::span<const std::byte> bytes,
                                                             const std::string& file) {
  if (bytes.size() > kMaxHeaderBytes)
    return data_loss(file + ": " + std::to_string(bytes.size()) + " bytes exceed the limit of " +
                     std::to_string(kMaxHeaderBytes));
  simdjson::dom::parser parser;
  LEVADA_ASSIGN_OR_RETURN(const object root, parse_object(parser, as_text(bytes), file));
  object weight_map;
  if (root["weight_map"].get(weight_map)) return data_loss(file + ": 'weight_map' must be an object");
  std::map<std::string, std::string> shard_of;
  for (const auto [name, value] : weight_map) {
    const std::string where = file + ": weight " + in_quotes(name);
    std::string_view shard;
    if (value.get(shard)) return data_loss(where + ": its shard must be a string");
    if (!is_plain_file_name(shard))
      return data_loss(where + ": shard " + in_quotes(shard) + " must be the plain name of a file in the same folder");
    if (!shard_of.emplace(name, shard).second) return data_loss(where + " stands twice");
  }
  return shard_of;
}

}  // namespace levada::files
