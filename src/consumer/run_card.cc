#include "consumer/run_card.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/durable_file.h"
#include "base/hex.h"

namespace levada::consumer {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;

// Reads fields until one is not what it must be; its name is the fault.
class CardReader {
 public:
  CardReader(const Json& object, const std::filesystem::path& file) : object_(object), file_(file) {}

  void text(const char* name, std::string* out) {
    const Json* value = find(name);
    if (value == nullptr || !value->is_string()) return fail(name, "a string");
    *out = value->get<std::string>();
  }
  void number(const char* name, std::int64_t least, std::int64_t most, std::int64_t* out) {
    const Json* value = find(name);
    if (value == nullptr || !value->is_number_integer() || value->get<std::int64_t>() < least ||
        value->get<std::int64_t>() > most) {
      return fail(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    *out = value->get<std::int64_t>();
  }
  void layers(const char* name, std::vector<std::int32_t>* out) {
    const Json* value = find(name);
    if (value == nullptr || !value->is_array()) return fail(name, "a list of layer ids");
    for (const Json& layer : *value) {
      if (!layer.is_number_integer()) return fail(name, "a list of layer ids");
      out->push_back(layer.get<std::int32_t>());
    }
  }
  void hashes(const char* name, std::vector<std::uint64_t>* out) {
    const Json* value = find(name);
    if (value == nullptr || !value->is_array()) return fail(name, "a list of checksums");
    for (const Json& item : *value) {
      const auto hash = parse_hex64(item.is_string() ? item.get<std::string>() : "");
      if (!hash.ok()) return fail(name, "a list of checksums");
      out->push_back(hash.value());
    }
  }
  void fail(const char* name, const std::string& wanted) {
    if (!status_.ok()) return;
    status_ = Status(StatusCode::kDataLoss, file_.string() + ": must be " + wanted, name);
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  const Json& object_;
  const std::filesystem::path& file_;
  Status status_;
};

Result<RunCard> parse(const Json& object, const std::filesystem::path& file) {
  CardReader reader(object, file);
  RunCard card;
  std::int64_t version = 0;
  std::string dtype;
  reader.number("version", kVersion, kVersion, &version);
  reader.text("run_id", &card.run_id);
  reader.text("store_id", &card.store_id);
  reader.text("contract_digest", &card.contract_digest);
  reader.text("source_digest", &card.source_digest);
  reader.text("registry_url", &card.registry_url);
  reader.number("total_samples", 1, kMostSamples, &card.total_samples);
  reader.number("prompts", 1, kMostSamples, &card.prompts);
  reader.layers("aux_layer_ids", &card.aux_layer_ids);
  reader.number("hidden_size", 1, 1 << 24, &card.hidden_size);
  reader.text("dtype", &dtype);
  reader.hashes("input_hashes", &card.input_hashes);
  if (const auto known = dtype_named(dtype)) {
    card.dtype = *known;
  } else {
    reader.fail("dtype", "the name of an element type");
  }
  if (static_cast<std::int64_t>(card.input_hashes.size()) != card.total_samples) {
    reader.fail("input_hashes", "one checksum per sample");
  }
  LEVADA_RETURN_IF_ERROR(reader.status());
  return card;
}

}  // namespace

Status write_run_card(const std::filesystem::path& control_dir, const RunCard& card) {
  Json hashes = Json::array();
  for (const std::uint64_t hash : card.input_hashes) hashes.push_back(hex64(hash));
  const Json object{{"version", kVersion},
                    {"run_id", card.run_id},
                    {"store_id", card.store_id},
                    {"contract_digest", card.contract_digest},
                    {"source_digest", card.source_digest},
                    {"registry_url", card.registry_url},
                    {"total_samples", card.total_samples},
                    {"prompts", card.prompts},
                    {"aux_layer_ids", card.aux_layer_ids},
                    {"hidden_size", card.hidden_size},
                    {"dtype", std::string(to_string(card.dtype))},
                    {"input_hashes", hashes}};
  const std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string_view pieces[] = {text};
  return replace_file(control_dir / kRunCardName, pieces);
}

Result<std::optional<RunCard>> read_run_card(const std::filesystem::path& control_dir) {
  const std::filesystem::path file = control_dir / kRunCardName;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return std::optional<RunCard>();
  std::ostringstream content;
  content << stream.rdbuf();
  const Json object = Json::parse(content.str(), nullptr, false);
  if (!object.is_object()) return data_loss(file.string() + " is no JSON object");
  LEVADA_ASSIGN_OR_RETURN(RunCard card, parse(object, file));
  return std::optional(std::move(card));
}

}  // namespace levada::consumer
