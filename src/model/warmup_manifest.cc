#include "model/warmup_manifest.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/durable_file.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/mapped_file.h"

namespace levada::model {
namespace {

constexpr std::string_view kHeader = "levada warm-up 1 ";

struct Field {
  std::string_view name;
  std::string WarmupKey::*value;
};
constexpr std::array kFields = {Field{"build", &WarmupKey::build}, Field{"gpu", &WarmupKey::gpu},
                                Field{"driver", &WarmupKey::driver}, Field{"model", &WarmupKey::model}};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string check_of(std::string_view body) { return hex64(hash64(std::as_bytes(std::span(body)))); }

// Takes the next line off `rest`; false at its end.
bool next_line(std::string_view& rest, std::string_view& line) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return false;
  line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

Status damaged() { return data_loss("it is damaged"); }

Result<WarmupParts> decode_parts(std::string_view rest) {
  constexpr std::string_view kPart = "part ";
  WarmupParts parts;
  for (std::string_view line; !rest.empty();) {
    if (!next_line(rest, line) || !line.starts_with(kPart)) return damaged();
    line.remove_prefix(kPart.size());
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return damaged();
    std::size_t bytes = 0;
    const std::string_view count = line.substr(space + 1);
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), bytes);
    if (error != std::errc() || end != count.data() + count.size() || bytes >= rest.size()) return damaged();
    parts.emplace(line.substr(0, space), rest.substr(0, bytes));
    rest.remove_prefix(bytes + 1);
  }
  return parts;
}

}  // namespace

std::string encode_manifest(const WarmupKey& key, const WarmupParts& parts) {
  std::string body;
  for (const Field& field : kFields) body += std::string(field.name) + ' ' + one_line(key.*field.value) + '\n';
  for (const auto& [name, text] : parts) {
    LEVADA_CHECK(name.find_first_of(" \n") == std::string::npos, "a part's name is one word");
    body += "part " + name + ' ' + std::to_string(text.size()) + '\n' + text + '\n';
  }
  return std::string(kHeader) + check_of(body) + '\n' + body;
}

Result<WarmupParts> decode_manifest(std::string_view text, const WarmupKey& key) {
  std::string_view line;
  if (!text.starts_with(kHeader) || !next_line(text, line)) return damaged();
  if (line.substr(kHeader.size()) != check_of(text)) return damaged();
  for (const Field& field : kFields) {
    if (!next_line(text, line) || !line.starts_with(field.name) || line.substr(field.name.size(), 1) != " ") {
      return damaged();
    }
    const std::string_view found = line.substr(field.name.size() + 1);
    if (const std::string own = one_line(key.*field.value); found != own) {
      return Status(StatusCode::kFailedPrecondition,
                    "it is for " + std::string(field.name) + " " + std::string(found) + ", this is " + own);
    }
  }
  return decode_parts(text);
}

std::filesystem::path manifest_file(const std::filesystem::path& folder, const WarmupKey& key) {
  return folder / ("warmup-" + check_of(one_line(key.gpu) + '\n' + one_line(key.model)) + ".txt");
}

Result<WarmupParts> read_manifest(const std::filesystem::path& file, const WarmupKey& key) {
  LEVADA_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(file));
  const std::span<const std::byte> bytes = mapped.bytes();
  return decode_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, key);
}

Status write_manifest(const std::filesystem::path& file, const WarmupKey& key, const WarmupParts& parts) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return unavailable("the folder " + file.parent_path().string() + ": " + error.message());
  const std::string text = encode_manifest(key, parts);
  const std::string_view piece = text;
  // A neighbour of this process's own: others may be writing too.
  const std::filesystem::path beside = file.string() + "." + std::to_string(::getpid()) + ".tmp";
  LEVADA_RETURN_IF_ERROR(write_synced(beside, {&piece, 1}));
  std::filesystem::rename(beside, file, error);
  if (error) return unavailable(file.string() + ": " + error.message());
  return {};
}

}  // namespace levada::model
