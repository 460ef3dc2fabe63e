#include "files/gguf_parser.h"

#include <algorithm>
#include <array>
#include <limits>

#include "files/byte_reader.h"
#include "files/layout.h"
#include "files/tensor_table.h"

namespace levada::files {
namespace {

enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kMaxAlignment = std::int64_t{1} << 31;
constexpr std::uint32_t kMaxDimensions = 4;
// The fewest bytes an entry can take: key length, type, one byte of value | name length, rank, type, offset.
constexpr std::size_t kMinMetadataBytes = 8 + 4 + 1;
constexpr std::size_t kMinTensorBytes = 8 + 4 + 4 + 8;

struct TensorType {
  std::uint32_t number;
  const char* name;
  std::optional<Encoding> encoding;
};

// ggml's numbers; those without an encoding are known by name only, for the message.
constexpr std::array kTensorTypes = std::to_array<TensorType>({
    {0, "F32", Encoding::kF32},
    {1, "F16", Encoding::kF16},
    {2, "Q4_0", Encoding::kQ4_0},
    {3, "Q4_1", Encoding::kQ4_1},
    {6, "Q5_0", {}},
    {7, "Q5_1", {}},
    {8, "Q8_0", Encoding::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", Encoding::kQ4_K},
    {13, "Q5_K", {}},
    {14, "Q6_K", Encoding::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", Encoding::kI32},
    {27, "I64", Encoding::kI64},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", Encoding::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
});

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file), reader_(bytes) {}

  Result<GgufContents> parse() {
    LEVADA_RETURN_IF_ERROR(read_header());
    for (std::uint64_t i = 0; i < metadata_count_; ++i) LEVADA_RETURN_IF_ERROR(read_metadata(i));
    LEVADA_RETURN_IF_ERROR(read_alignment());
    for (std::uint64_t i = 0; i < tensor_count_; ++i) LEVADA_RETURN_IF_ERROR(read_tensor(i));
    LEVADA_RETURN_IF_ERROR(place_tensors());
    return std::move(contents_);
  }

 private:
  Status ends_in(const std::string& what) const {
    return data_loss(file_ + ": the file ends inside " + what + ", " + std::to_string(reader_.left()) +
                     " bytes are left at byte " + std::to_string(reader_.position()));
  }

  Status check_count(std::uint64_t count, std::size_t min_bytes, const std::string& what) const {
    if (count <= reader_.left() / min_bytes) return {};
    return data_loss(file_ + ": " + std::to_string(count) + " " + what + " of at least " + std::to_string(min_bytes) +
                     " bytes can't fit into the " + std::to_string(reader_.left()) + " bytes left in the file");
  }

  Status read_header();
  Status read_metadata(std::uint64_t index);
  // `name` is "metadata 'KEY'".
  Status read_value(std::uint32_t type, const std::string& name, GgufValue& value);
  Status read_array(const std::string& name, GgufValue& value);
  Status read_alignment();
  Status read_tensor(std::uint64_t index);
  Status place_tensors();

  std::span<const std::byte> bytes_;
  const std::string& file_;
  ByteReader reader_;
  std::uint64_t metadata_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  std::vector<std::uint64_t> offsets_;  // of contents_.tensors, in the data section
  GgufContents contents_;
};

Status Parser::read_header() {
  const auto magic = reader_.read<std::array<char, 4>>();
  if (!magic) return ends_in("the magic number");
  if (std::string_view(magic->data(), magic->size()) != "GGUF")
    return data_loss(file_ + ": begins with " + in_quotes({magic->data(), magic->size()}) + ", not with 'GGUF'");
  const auto version = reader_.read<std::uint32_t>();
  if (!version) return ends_in("the version");
  if (__builtin_bswap32(*version) == 2 || __builtin_bswap32(*version) == 3)
    return data_loss(file_ + ": is a big-endian GGUF file, only little-endian ones are read");
  if (*version != 2 && *version != 3)
    return data_loss(file_ + ": GGUF version " + std::to_string(*version) + " is not supported, only 2 and 3 are");
  const auto tensor_count = reader_.read<std::uint64_t>();
  const auto metadata_count = reader_.read<std::uint64_t>();
  if (!tensor_count || !metadata_count) return ends_in("the header");
  tensor_count_ = *tensor_count;
  metadata_count_ = *metadata_count;
  return check_count(metadata_count_, kMinMetadataBytes, "metadata entries");
}

Status Parser::read_metadata(std::uint64_t index) {
  const auto key = reader_.read_string();
  if (!key) return ends_in("the key of metadata entry " + std::to_string(index));
  const std::string name = "metadata " + in_quotes(*key);
  if (key->empty()) return data_loss(file_ + ": " + name + ": entry " + std::to_string(index) + " has an empty key");
  const auto type = reader_.read<std::uint32_t>();
  if (!type) return ends_in(name);
  const auto [entry, is_new] = contents_.metadata.try_emplace(*key);
  if (!is_new) return data_loss(file_ + ": " + name + " stands twice");
  return read_value(*type, name, entry->second);
}

// Reads one T and widens it to Wide, which can hold every T. False at the end of the bytes.
template <class T, class Wide>
bool read_as(ByteReader& reader, GgufValue& value) {
  const auto raw = reader.read<T>();
  if (raw) value.emplace<Wide>(static_cast<Wide>(*raw));
  return raw.has_value();
}

bool read_u64(ByteReader& reader, GgufValue& value) {
  const auto raw = reader.read<std::uint64_t>();
  if (!raw) return false;
  if (*raw > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value.emplace<double>(static_cast<double>(*raw));
  } else {
    value.emplace<std::int64_t>(static_cast<std::int64_t>(*raw));
  }
  return true;
}

bool read_scalar(std::uint32_t type, ByteReader& reader, GgufValue& value) {
  switch (type) {
    case kU8: return read_as<std::uint8_t, std::int64_t>(reader, value);
    case kI8: return read_as<std::int8_t, std::int64_t>(reader, value);
    case kU16: return read_as<std::uint16_t, std::int64_t>(reader, value);
    case kI16: return read_as<std::int16_t, std::int64_t>(reader, value);
    case kU32: return read_as<std::uint32_t, std::int64_t>(reader, value);
    case kI32: return read_as<std::int32_t, std::int64_t>(reader, value);
    case kI64: return read_as<std::int64_t, std::int64_t>(reader, value);
    case kU64: return read_u64(reader, value);
    case kF32: return read_as<float, double>(reader, value);
    default: return read_as<double, double>(reader, value);  // kF64: read_value() has refused the rest
  }
}

Status Parser::read_value(std::uint32_t type, const std::string& name, GgufValue& value) {
  if (type == kArray) return read_array(name, value);
  if (type > kF64)
    return data_loss(file_ + ": " + name + ": value type " + std::to_string(type) + " is unknown, the last one is 12");
  if (type == kString) {
    const auto text = reader_.read_string();
    if (!text) return ends_in("the text of " + name);
    value.emplace<std::string_view>(*text);
    return {};
  }
  if (type == kBool) {
    const auto raw = reader_.read<std::uint8_t>();
    if (!raw) return ends_in("the value of " + name);
    if (*raw > 1) return data_loss(file_ + ": " + name + ": a bool must be 0 or 1, got " + std::to_string(*raw));
    value.emplace<bool>(*raw == 1);
    return {};
  }
  return read_scalar(type, reader_, value) ? Status() : ends_in("the value of " + name);
}

Status Parser::read_array(const std::string& name, GgufValue& value) {
  constexpr std::array<std::size_t, 13> kMinElementBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
  const auto type = reader_.read<std::uint32_t>();
  const auto count = reader_.read<std::uint64_t>();
  if (!type || !count) return ends_in("the array of " + name);
  if (*type == kArray) return data_loss(file_ + ": " + name + ": arrays of arrays are not supported");
  if (*type > kF64)
    return data_loss(file_ + ": " + name + ": element type " + std::to_string(*type) +
                     " is unknown, the last one is 12");
  LEVADA_RETURN_IF_ERROR(check_count(*count, kMinElementBytes[*type], "elements of " + name));

  std::vector<std::string_view> strings;
  std::vector<std::int64_t> integers;
  for (std::uint64_t i = 0; i < *count; ++i) {
    GgufValue element;
    LEVADA_RETURN_IF_ERROR(read_value(*type, name, element));
    if (const auto* text = std::get_if<std::string_view>(&element)) strings.push_back(*text);
    if (const auto* integer = std::get_if<std::int64_t>(&element)) integers.push_back(*integer);
  }
  if (*type == kString) {
    value = std::move(strings);
  } else if (*type != kF32 && *type != kF64 && *type != kBool) {
    if (integers.size() != *count)
      return data_loss(file_ + ": " + name + ": an array of integers holds one above 2^63-1");
    value = std::move(integers);
  }
  return {};
}

Status Parser::read_alignment() {
  const auto found = contents_.metadata.find("general.alignment");
  if (found == contents_.metadata.end()) return {};
  const auto* alignment = std::get_if<std::int64_t>(&found->second);
  if (alignment == nullptr) return data_loss(file_ + ": metadata 'general.alignment' must be an integer");
  if (*alignment < 1 || *alignment > kMaxAlignment || (*alignment & (*alignment - 1)) != 0)
    return data_loss(file_ + ": metadata 'general.alignment' must be a power of two from 1 to " +
                     std::to_string(kMaxAlignment) + ", got " + std::to_string(*alignment));
  alignment_ = static_cast<std::uint64_t>(*alignment);
  return {};
}

Result<Encoding> encoding_of(std::uint32_t type, const std::string& where) {
  const auto* known = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                   [&](const TensorType& candidate) { return candidate.number == type; });
  if (known == kTensorTypes.end()) return data_loss(where + ": tensor type " + std::to_string(type) + " is unknown");
  if (!known->encoding)
    return data_loss(where + ": tensor type " + std::to_string(type) + " (" + known->name + ") is not supported");
  return *known->encoding;
}

Status Parser::read_tensor(std::uint64_t index) {
  if (index == 0) LEVADA_RETURN_IF_ERROR(check_count(tensor_count_, kMinTensorBytes, "tensor entries"));
  const auto name = reader_.read_string();
  if (!name) return ends_in("the name of tensor entry " + std::to_string(index));
  const std::string where = file_ + ": tensor " + in_quotes(*name);
  const auto rank = reader_.read<std::uint32_t>();
  if (!rank) return ends_in("tensor " + in_quotes(*name));
  if (*rank > kMaxDimensions)
    return data_loss(where + ": has " + std::to_string(*rank) + " dimensions, at most " +
                     std::to_string(kMaxDimensions) + " are supported");
  TensorInfo tensor{.name = std::string(*name)};
  for (std::uint32_t i = 0; i < *rank; ++i) {
    const auto dimension = reader_.read<std::uint64_t>();
    if (!dimension) return ends_in("tensor " + in_quotes(*name));
    if (*dimension > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return data_loss(where + ": dimension " + std::to_string(*dimension) + " exceeds 2^63-1");
    tensor.shape.push_back(static_cast<std::int64_t>(*dimension));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  const auto type = reader_.read<std::uint32_t>();
  const auto offset = reader_.read<std::uint64_t>();
  if (!type || !offset) return ends_in("tensor " + in_quotes(*name));
  LEVADA_ASSIGN_OR_RETURN(tensor.encoding, encoding_of(*type, where));
  if (*offset % alignment_ != 0)
    return data_loss(where + ": offset " + std::to_string(*offset) + " is no multiple of the alignment " +
                     std::to_string(alignment_));
  contents_.tensors.push_back(std::move(tensor));
  offsets_.push_back(*offset);
  return {};
}

Status Parser::place_tensors() {
  const std::uint64_t begin = (reader_.position() + alignment_ - 1) / alignment_ * alignment_;
  const auto data = bytes_.subspan(static_cast<std::size_t>(std::min<std::uint64_t>(begin, bytes_.size())));
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    TensorInfo& tensor = contents_.tensors[i];
    const std::string where = file_ + ": tensor " + in_quotes(tensor.name);
    LEVADA_ASSIGN_OR_RETURN(const std::int64_t size, expected_bytes(tensor.encoding, tensor.shape, where));
    if (offsets_[i] > data.size() || static_cast<std::uint64_t>(size) > data.size() - offsets_[i])
      return data_loss(where + ": " + std::to_string(size) + " bytes (shape " + to_string(tensor.shape) + " of " +
                       std::string(to_string(tensor.encoding)) + ") at offset " + std::to_string(offsets_[i]) +
                       " lie outside the data section of " + std::to_string(data.size()) + " bytes");
    tensor.bytes = data.subspan(static_cast<std::size_t>(offsets_[i]), static_cast<std::size_t>(size));
  }
  return check_disjoint(contents_.tensors, data, file_);
}

}  // namespace

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  return Parser(bytes, file).parse();
}

}  // namespace levada::files
