#include "producer/prepared_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "base/durable_file.h"
#include "base/hash.h"
#include "base/hex.h"

namespace levada::producer {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "levada-prepared-samples";
constexpr std::int64_t kVersion = 1;

std::string digest_of(std::string_view text) { return hex64(hash64(std::as_bytes(std::span(text)))); }

Status damaged(const std::filesystem::path& file, const std::string& what) {
  return data_loss(file.string() + ": " + what + "; remove it to prepare the prompts anew");
}

Status check_made_from(const std::filesystem::path& file, const Json& header, const MadeFrom& made_from) {
  const Json stored = header.value("made_from", Json::object());
  for (const auto& [name, value] : made_from) {
    const auto found = stored.find(name);
    if (found != stored.end() && *found == value) continue;
    const std::string was = found == stored.end() ? "nothing" : found->dump();
    return Status(StatusCode::kFailedPrecondition,
                  file.string() + " was made with " + was + ", now it is \"" + value +
                      "\": use another control_dir, or the old value to go on with that run",
                  name);
  }
  return {};
}

bool read_sample(const std::string& line, PreparedSample& sample) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return false;
  const auto ids = object.find("input_ids");
  const auto mask = object.find("loss_mask");
  if (ids == object.end() || mask == object.end() || !ids->is_array() || !mask->is_array() ||
      ids->size() != mask->size()) {
    return false;
  }
  for (std::size_t i = 0; i < ids->size(); ++i) {
    if (!(*ids)[i].is_number_integer() || !(*mask)[i].is_number_integer()) return false;
    sample.input_ids.push_back((*ids)[i].get<std::int32_t>());
    sample.loss_mask.push_back((*mask)[i].get<std::uint8_t>());
  }
  const auto id = object.find("task_id");
  if (id != object.end() && id->is_string()) sample.task_id = id->get<std::string>();
  return true;
}

}  // namespace

Status write_prepared(const std::filesystem::path& file, const MadeFrom& made_from, const Preparation& preparation) {
  const Json header{{"format", kFormat},
                    {"version", kVersion},
                    {"made_from", made_from},
                    {"samples", preparation.samples.size()},
                    {"dropped", preparation.dropped},
                    {"offered", preparation.offered}};
  std::string text = header.dump() + "\n";
  for (const PreparedSample& sample : preparation.samples) {
    Json line{{"input_ids", sample.input_ids}, {"loss_mask", sample.loss_mask}};
    if (!sample.task_id.empty()) line["task_id"] = sample.task_id;
    text += line.dump() + "\n";
  }
  text += Json{{"xxh3", digest_of(text)}}.dump() + "\n";
  const std::string_view pieces[] = {text};
  return replace_file(file, pieces);
}

Result<std::optional<Preparation>> read_prepared(const std::filesystem::path& file, const MadeFrom& made_from) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    if (!std::filesystem::exists(file)) return std::optional<Preparation>();
    return unavailable(file.string() + " can't be read");
  }
  std::ostringstream content;
  content << stream.rdbuf();
  const std::string text = content.str();

  const std::size_t last_line = text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
  if (last_line == std::string::npos) return damaged(file, "is cut short");
  const Json footer = Json::parse(text.substr(last_line + 1), nullptr, false);
  if (!footer.is_object() ||
      footer.value("xxh3", Json()) != digest_of(std::string_view(text).substr(0, last_line + 1))) {
    return damaged(file, "does not match its checksum");
  }
  std::istringstream lines(text.substr(0, last_line + 1));
  std::string line;
  std::getline(lines, line);
  const Json header = Json::parse(line, nullptr, false);
  if (!header.is_object() || header.value("format", Json()) != kFormat || header.value("version", Json()) != kVersion) {
    return damaged(file, "is not version " + std::to_string(kVersion) + " of its format");
  }
  LEVADA_RETURN_IF_ERROR(check_made_from(file, header, made_from));
  Preparation preparation;
  if (const auto dropped = header.find("dropped"); dropped != header.end() && dropped->is_object()) {
    for (const auto& [reason, count] : dropped->items()) {
      if (count.is_number_integer()) preparation.dropped[reason] = count.get<std::int64_t>();
    }
  }
  if (const auto offered = header.find("offered"); offered != header.end() && offered->is_number_integer()) {
    preparation.offered = offered->get<std::int64_t>();
  }
  while (std::getline(lines, line)) {
    PreparedSample sample;
    if (!read_sample(line, sample)) return damaged(file, "line " + std::to_string(preparation.samples.size() + 2));
    preparation.samples.push_back(std::move(sample));
  }
  if (header.value("samples", Json()) != preparation.samples.size())
    return damaged(file, "holds another number of samples");
  return std::optional(std::move(preparation));
}

}  // namespace levada::producer
